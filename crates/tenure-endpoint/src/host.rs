//! One server of a URL: its name or address, and its port.

use std::fmt;
use std::net::Ipv6Addr;

use crate::error::{InvalidUrl, Part};
use crate::percent::decode;

/// One server of a URL: a host name or address, and the port if the URL has one.
///
/// # Examples
///
/// ```
/// let url = tenure_endpoint::StoreUrl::parse("etcd://a,[::1]:2379")?;
/// assert_eq!(url.hosts()[0].port_or(2379), 2379);
/// assert_eq!(url.hosts()[1].name(), "::1");
/// # Ok::<(), tenure_endpoint::InvalidUrl>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Host {
    name: String,
    port: Option<u16>,
}

impl Host {
    /// A host whose name and port do not come from a URL, such as one that another server names.
    #[must_use]
    pub fn new(name: impl Into<String>, port: u16) -> Self {
        Host {
            name: name.into(),
            port: Some(port),
        }
    }

    /// This host, with the port `default` if it has none.
    #[must_use]
    pub fn with_default_port(self, default: u16) -> Self {
        Host {
            port: Some(self.port_or(default)),
            ..self
        }
    }

    /// The name or address, percent-decoded. An IPv6 address is without its brackets.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The port; `None` if the URL has none. A port in a URL is never 0.
    #[must_use]
    pub fn port(&self) -> Option<u16> {
        self.port
    }

    /// The port, or `default` if the URL has none.
    #[must_use]
    pub fn port_or(&self, default: u16) -> u16 {
        self.port.unwrap_or(default)
    }

    /// Parses the host at `position`, its place in the URL, counted from 1.
    pub(crate) fn parse(text: &str, position: usize) -> Result<Self, InvalidUrl> {
        let (name, port) = match text.strip_prefix('[') {
            Some(bracketed) => split_bracketed(bracketed, position)?,
            None => split_plain(text, position)?,
        };
        let port = port.map(|digits| parse_port(digits, position)).transpose()?;
        Ok(Self { name, port })
    }
}

/// Writes `name`, `name:port` or `[address]:port`.
impl fmt::Display for Host {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.name.contains(':') {
            write!(f, "[{}]", self.name)?;
        } else {
            f.write_str(&self.name)?;
        }
        match self.port {
            Some(port) => write!(f, ":{port}"),
            None => Ok(()),
        }
    }
}

/// Splits the text after a `[` into an IPv6 address and the digits of its port.
fn split_bracketed(text: &str, position: usize) -> Result<(String, Option<&str>), InvalidUrl> {
    let (address, rest) = text.split_once(']').ok_or(InvalidUrl::Address { position })?;
    let address: Ipv6Addr = address.parse().map_err(|_| InvalidUrl::Address { position })?;
    let port = match rest {
        "" => None,
        _ => Some(rest.strip_prefix(':').ok_or(InvalidUrl::Port { position })?),
    };
    Ok((address.to_string(), port))
}

fn split_plain(text: &str, position: usize) -> Result<(String, Option<&str>), InvalidUrl> {
    let (name, port) = match text.split_once(':') {
        Some((_, port)) if port.contains(':') => return Err(InvalidUrl::Address { position }),
        Some((name, port)) => (name, Some(port)),
        None => (text, None),
    };
    let name = decode(name, Part::Host)?;
    let unfit = |c: char| c.is_whitespace() || c.is_control() || matches!(c, '[' | ']');
    if name.is_empty() || name.contains(unfit) {
        return Err(InvalidUrl::HostName { position });
    }
    Ok((name, port))
}

fn parse_port(digits: &str, position: usize) -> Result<u16, InvalidUrl> {
    let only_digits = !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_digit());
    match digits.parse() {
        Ok(port) if only_digits && port > 0 => Ok(port),
        _ => Err(InvalidUrl::Port { position }),
    }
}
