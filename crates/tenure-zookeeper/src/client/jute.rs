//! Jute, the encoding of ZooKeeper's messages: numbers in network byte order, and byte strings and lists after their
//! lengths.

/// Writes a message.
#[derive(Default)]
pub(super) struct Writer(Vec<u8>);

impl Writer {
    pub(super) fn bool(mut self, value: bool) -> Self {
        self.0.push(value.into());
        self
    }

    pub(super) fn int(mut self, value: i32) -> Self {
        self.0.extend(value.to_be_bytes());
        self
    }

    pub(super) fn long(mut self, value: i64) -> Self {
        self.0.extend(value.to_be_bytes());
        self
    }

    /// Writes bytes after their number. A message with more bytes than a number can say is refused before it is sent.
    pub(super) fn bytes(self, value: &[u8]) -> Self {
        let mut writer = self.int(i32::try_from(value.len()).unwrap_or(i32::MAX));
        writer.0.extend(value);
        writer
    }

    pub(super) fn text(self, value: &str) -> Self {
        self.bytes(value.as_bytes())
    }

    pub(super) fn into_bytes(self) -> Vec<u8> {
        self.0
    }
}

/// Error for bytes that are not the expected message.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Malformed;

pub(super) type Read<T> = Result<T, Malformed>;

/// Reads a message. Bytes after its end are ignored: a later version of ZooKeeper may have added a field.
pub(super) struct Reader<'a>(pub(super) &'a [u8]);

impl<'a> Reader<'a> {
    fn take(&mut self, count: usize) -> Read<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(count).ok_or(Malformed)?;
        self.0 = rest;
        Ok(taken)
    }

    fn array<const N: usize>(&mut self) -> Read<[u8; N]> {
        let (taken, rest) = self.0.split_first_chunk().ok_or(Malformed)?;
        self.0 = rest;
        Ok(*taken)
    }

    pub(super) fn bool(&mut self) -> Read<bool> {
        self.array().map(|[byte]| byte != 0)
    }

    pub(super) fn int(&mut self) -> Read<i32> {
        self.array().map(i32::from_be_bytes)
    }

    pub(super) fn long(&mut self) -> Read<i64> {
        self.array().map(i64::from_be_bytes)
    }

    /// Reads bytes after their number. A number below 0 stands for no bytes.
    pub(super) fn bytes(&mut self) -> Read<Vec<u8>> {
        let count = usize::try_from(self.int()?).unwrap_or(0);
        self.take(count).map(<[u8]>::to_vec)
    }

    pub(super) fn text(&mut self) -> Read<String> {
        String::from_utf8(self.bytes()?).map_err(|_| Malformed)
    }

    /// Reads a list of texts. Its length is not trusted: a text has at least four bytes.
    pub(super) fn texts(&mut self) -> Read<Vec<String>> {
        let count = usize::try_from(self.int()?).unwrap_or(0);
        if count > self.0.len() / 4 {
            return Err(Malformed);
        }
        (0..count).map(|_| self.text()).collect()
    }
}
