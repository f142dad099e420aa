//! Messages of the services for logins, for the state of a member, and for the list of members.

use std::fmt;

use super::common::ResponseHeader;

/// A login.
#[derive(Clone, PartialEq, Eq, prost::Message)]
#[prost(skip_debug)]
pub struct AuthenticateRequest {
    /// The user.
    #[prost(string, tag = "1")]
    pub name: String,
    /// The password. `Debug` omits it.
    #[prost(string, tag = "2")]
    pub password: String,
}

impl fmt::Debug for AuthenticateRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shown = &mut f.debug_struct("AuthenticateRequest");
        shown.field("name", &self.name).finish_non_exhaustive()
    }
}

/// The reply to an [`AuthenticateRequest`].
#[derive(Clone, PartialEq, Eq, prost::Message)]
#[prost(skip_debug)]
pub struct AuthenticateResponse {
    /// What later requests show instead of the password. `Debug` omits it.
    #[prost(string, tag = "2")]
    pub token: String,
}

impl fmt::Debug for AuthenticateResponse {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AuthenticateResponse").finish_non_exhaustive()
    }
}

/// The state of a member.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct StatusResponse {
    /// State of the cluster.
    #[prost(message, optional, tag = "1")]
    pub header: Option<ResponseHeader>,
    /// Version of etcd.
    #[prost(string, tag = "2")]
    pub version: String,
    /// Size of the database in bytes.
    #[prost(int64, tag = "3")]
    pub db_size: i64,
    /// ID of the leader; 0 if there is none.
    #[prost(uint64, tag = "4")]
    pub leader: u64,
    /// Alarms and other errors of the member, in its own words.
    #[prost(string, repeated, tag = "8")]
    pub errors: Vec<String>,
    /// Whether the member is a learner, which serves none of our requests.
    #[prost(bool, tag = "10")]
    pub is_learner: bool,
}

/// The kind of an alarm.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, prost::Enumeration)]
#[repr(i32)]
pub enum AlarmType {
    /// No alarm.
    None = 0,
    /// The database has reached its quota.
    NoSpace = 1,
    /// The data of members differ.
    Corrupt = 2,
}

/// An active alarm.
#[derive(Clone, Copy, PartialEq, Eq, prost::Message)]
pub struct AlarmMember {
    /// ID of the member.
    #[prost(uint64, tag = "1")]
    pub member_id: u64,
    /// The kind of the alarm.
    #[prost(enumeration = "AlarmType", tag = "2")]
    pub alarm: i32,
}

/// The active alarms of the cluster.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct AlarmResponse {
    /// State of the cluster.
    #[prost(message, optional, tag = "1")]
    pub header: Option<ResponseHeader>,
    /// The active alarms.
    #[prost(message, repeated, tag = "2")]
    pub alarms: Vec<AlarmMember>,
}

/// A member of the cluster.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct MemberInfo {
    /// The member's ID.
    #[prost(uint64, tag = "1")]
    pub id: u64,
    /// The member's name; empty if it has not started yet.
    #[prost(string, tag = "2")]
    pub name: String,
    /// The URLs that the member names to clients.
    #[prost(string, repeated, tag = "4")]
    pub client_urls: Vec<String>,
    /// Whether the member is a learner.
    #[prost(bool, tag = "5")]
    pub is_learner: bool,
}

/// The members of the cluster.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct MemberListResponse {
    /// State of the cluster.
    #[prost(message, optional, tag = "1")]
    pub header: Option<ResponseHeader>,
    /// The members.
    #[prost(message, repeated, tag = "2")]
    pub members: Vec<MemberInfo>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_password_and_a_token_are_not_shown() {
        let login = AuthenticateRequest {
            name: "ada".to_owned(),
            password: "s3cr3t".to_owned(),
        };
        assert_eq!(format!("{login:?}"), r#"AuthenticateRequest { name: "ada", .. }"#);
        let reply = AuthenticateResponse {
            token: "s3cr3t".to_owned(),
        };
        assert_eq!(format!("{reply:?}"), "AuthenticateResponse { .. }");
    }
}
