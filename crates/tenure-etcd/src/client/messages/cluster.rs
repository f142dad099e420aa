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

messages! {
    /// The state of a member.
    StatusResponse {
        /// State of the cluster.
        header: Option<ResponseHeader> [message, optional, tag = "1"],
        /// Version of etcd.
        version: String [string, tag = "2"],
        /// Size of the database in bytes.
        db_size: i64 [int64, tag = "3"],
        /// ID of the leader; 0 if there is none.
        leader: u64 [uint64, tag = "4"],
        /// Whether the member is a learner, which serves none of our requests.
        is_learner: bool [bool, tag = "10"],
        /// The most bytes that the database may have; 0 before etcd 3.6, which does not say.
        db_size_quota: i64 [int64, tag = "12"],
    }
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

messages! {
    /// An active alarm.
    #[derive(Copy)]
    AlarmMember {
        /// ID of the member.
        member_id: u64 [uint64, tag = "1"],
        /// The kind of the alarm.
        alarm: i32 [enumeration = "AlarmType", tag = "2"],
    }

    /// The active alarms of the cluster.
    AlarmResponse {
        /// State of the cluster.
        header: Option<ResponseHeader> [message, optional, tag = "1"],
        /// The active alarms.
        alarms: Vec<AlarmMember> [message, repeated, tag = "2"],
    }

    /// A member of the cluster.
    MemberInfo {
        /// The member's ID.
        id: u64 [uint64, tag = "1"],
        /// Whether the member is a learner.
        is_learner: bool [bool, tag = "5"],
    }

    /// The members of the cluster.
    MemberListResponse {
        /// State of the cluster.
        header: Option<ResponseHeader> [message, optional, tag = "1"],
        /// The members.
        members: Vec<MemberInfo> [message, repeated, tag = "2"],
    }
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
