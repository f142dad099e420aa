//! Messages of the services for logins, for the state of a member, and for the list of members.

use std::fmt;

use super::ResponseHeader;

/// The kind of an alarm: the database has reached its quota.
pub const NO_SPACE: i32 = 1;

/// The kind of an alarm: the data of members differ.
pub const CORRUPT: i32 = 2;

messages! {
    /// A login.
    #[prost(skip_debug)]
    AuthenticateRequest {
        /// The user.
        name: String [string, tag = "1"],
        /// The password. `Debug` omits it.
        password: String [string, tag = "2"],
    }

    /// The reply to an [`AuthenticateRequest`].
    #[prost(skip_debug)]
    AuthenticateResponse {
        /// What later requests show instead of the password. `Debug` omits it.
        token: String [string, tag = "2"],
    }

    /// The state of a member.
    StatusResponse {
        /// State of the cluster.
        header: ResponseHeader [message, required, tag = "1"],
        /// Version of etcd.
        version: String [string, tag = "2"],
        /// Size of the database in bytes.
        db_size: i64 [int64, tag = "3"],
        /// The most bytes that the database may have; 0 before etcd 3.6, which does not say.
        db_size_quota: i64 [int64, tag = "12"],
    }

    /// An active alarm.
    #[derive(Copy)]
    AlarmMember {
        /// The kind of the alarm, such as [`NO_SPACE`].
        alarm: i32 [int32, tag = "2"],
    }

    /// The active alarms of the cluster.
    AlarmResponse {
        /// The active alarms.
        alarms: Vec<AlarmMember> [message, repeated, tag = "2"],
    }

    /// A member of the cluster.
    #[derive(Copy)]
    MemberInfo {
        /// Whether the member is a learner.
        is_learner: bool [bool, tag = "5"],
    }

    /// The members of the cluster.
    MemberListResponse {
        /// The members.
        members: Vec<MemberInfo> [message, repeated, tag = "2"],
    }
}

impl fmt::Debug for AuthenticateRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shown = &mut f.debug_struct("AuthenticateRequest");
        shown.field("name", &self.name).finish_non_exhaustive()
    }
}

impl fmt::Debug for AuthenticateResponse {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AuthenticateResponse").finish_non_exhaustive()
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
