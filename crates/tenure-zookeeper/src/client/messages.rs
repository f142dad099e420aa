//! The messages of ZooKeeper's protocol that this client sends and reads.

use super::jute::{Malformed, Read, Reader, Writer};
use crate::error::Code;

/// Numbers of the kinds of requests.
pub(super) mod opcode {
    pub(crate) const CREATE: i32 = 1;
    pub(crate) const DELETE: i32 = 2;
    pub(crate) const EXISTS: i32 = 3;
    pub(crate) const GET_DATA: i32 = 4;
    pub(crate) const SET_DATA: i32 = 5;
    pub(crate) const SYNC: i32 = 9;
    pub(crate) const PING: i32 = 11;
    pub(crate) const GET_CHILDREN: i32 = 12;
    pub(crate) const CHECK: i32 = 13;
    pub(crate) const MULTI: i32 = 14;
    pub(crate) const CREATE_2: i32 = 15;
    pub(crate) const CREATE_CONTAINER: i32 = 19;
    pub(crate) const AUTH: i32 = 100;
    pub(crate) const CLOSE_SESSION: i32 = -11;
    pub(crate) const ERROR: i32 = -1;
}

/// Numbers of messages that are no request of the user, or no reply.
pub(super) mod xid {
    pub(crate) const EVENT: i32 = -1;
    pub(crate) const PING: i32 = -2;
    pub(crate) const AUTH: i32 = -4;
}

/// How long a node stays, and whether ZooKeeper appends a number to its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// The node stays until it is deleted.
    Persistent = 0,
    /// The node is deleted at the end of its session.
    Ephemeral = 1,
    /// The node stays until it is deleted, and its name ends with a number that rises.
    PersistentSequential = 2,
    /// The node is deleted at the end of its session, and its name ends with a number that rises.
    EphemeralSequential = 3,
    /// ZooKeeper deletes the node some time after its last child.
    Container = 4,
}

/// The clients that may read, change and delete a node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Acl {
    /// All clients.
    #[default]
    Open,
    /// Clients with the user and password of the client that created the node.
    Creator,
}

/// All permissions on a node.
const ALL: i32 = 31;

/// The version that stands for any.
const ANY_VERSION: i32 = -1;

/// What ZooKeeper knows of a node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stat {
    /// Number of the change that created the node.
    pub czxid: i64,
    /// Number of the last change of the data.
    pub mzxid: i64,
    /// Time of creation on the leader's clock, in milliseconds since 1970.
    pub ctime: i64,
    /// Time of the last change of the data, in milliseconds since 1970.
    pub mtime: i64,
    /// Number of changes of the data.
    pub version: i32,
    /// Number of changes of the children.
    pub cversion: i32,
    /// Number of changes of the access control list.
    pub aversion: i32,
    /// The session of an ephemeral node; 0 for others.
    pub ephemeral_owner: i64,
    /// Length of the data in bytes.
    pub data_length: i32,
    /// Number of children.
    pub num_children: i32,
    /// Number of the last change of the children.
    pub pzxid: i64,
}

/// A node that was created.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Created {
    /// The path, with the number that ZooKeeper has appended to it.
    pub path: String,
    /// Number of the change that created the node.
    pub czxid: i64,
}

/// One operation of a transaction. A version of `None` stands for any.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Op {
    /// Fails unless the node exists and has the version.
    Check(String, Option<i32>),
    /// Creates a node with these data.
    Create(String, Vec<u8>, Mode, Acl),
    /// Deletes a node that has the version.
    Delete(String, Option<i32>),
    /// Replaces the data of a node that has the version.
    SetData(String, Vec<u8>, Option<i32>),
}

/// What became of a transaction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// ZooKeeper has carried out all operations.
    Done {
        /// Number of the change: the `czxid` of nodes that it created.
        zxid: i64,
        /// The result of each operation.
        results: Vec<Done>,
    },
    /// ZooKeeper has carried out no operation.
    Refused {
        /// Position of the first operation that failed. ZooKeeper has not tried the later ones.
        index: usize,
        /// The reason.
        code: Code,
    },
}

/// The result of one operation of a transaction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Done {
    /// The check has passed.
    Checked,
    /// The node was created. Its path, with the number that ZooKeeper has appended to it.
    Created(String),
    /// The node was deleted.
    Deleted,
    /// The data were replaced.
    Set(Stat),
}

/// The first message on a connection.
pub(super) fn connect(last_zxid: i64, timeout_ms: i32, session: i64, password: &[u8]) -> Vec<u8> {
    let (protocol, read_only) = (0, false);
    let writer = Writer::default().int(protocol).long(last_zxid).int(timeout_ms);
    writer.long(session).bytes(password).bool(read_only).into_bytes()
}

/// The server's answer to the first message.
pub(super) struct ConnectReply {
    /// How long the session lasts without a sign of life; 0 if it has ended.
    pub(super) timeout_ms: i32,
    pub(super) session: i64,
    pub(super) password: Vec<u8>,
}

impl ConnectReply {
    pub(super) fn read(bytes: &[u8]) -> Read<Self> {
        let mut reader = Reader(bytes);
        let _protocol = reader.int()?;
        Ok(ConnectReply {
            timeout_ms: reader.int()?,
            session: reader.long()?,
            password: reader.bytes()?,
        })
    }
}

/// Puts the header of a request before its body.
pub(super) fn request(xid: i32, opcode: i32, body: &[u8]) -> Vec<u8> {
    let mut message = Writer::default().int(xid).int(opcode).into_bytes();
    message.extend(body);
    message
}

/// Credentials in ZooKeeper's scheme `digest`.
pub(super) fn digest(user: &str, password: &str) -> Vec<u8> {
    let any = 0;
    let writer = Writer::default().int(any).text("digest");
    writer.text(&format!("{user}:{password}")).into_bytes()
}

/// The start of each message from the server, except the first.
#[derive(Clone, Copy)]
pub(super) struct ReplyHeader {
    pub(super) xid: i32,
    pub(super) zxid: i64,
    pub(super) code: Code,
}

impl ReplyHeader {
    /// Reads the header, and returns it with the rest of the message.
    pub(super) fn read(bytes: &[u8]) -> Read<(Self, &[u8])> {
        let mut reader = Reader(bytes);
        let header = ReplyHeader {
            xid: reader.int()?,
            zxid: reader.long()?,
            code: Code(reader.int()?),
        };
        Ok((header, reader.0))
    }
}

/// What the message of a watch says: the number of the event's kind, and the path of the node.
pub(super) fn event(body: &[u8]) -> Read<(i32, String)> {
    let mut reader = Reader(body);
    let kind = reader.int()?;
    let _state = reader.int()?;
    Ok((kind, reader.text()?))
}

impl Op {
    /// The number of the operation as a request, and in a transaction.
    pub(super) fn opcode(&self) -> i32 {
        match self {
            Op::Check(..) => opcode::CHECK,
            Op::Create(_, _, Mode::Container, _) => opcode::CREATE_CONTAINER,
            Op::Create(..) => opcode::CREATE,
            Op::Delete(..) => opcode::DELETE,
            Op::SetData(..) => opcode::SET_DATA,
        }
    }

    pub(super) fn write(&self, writer: Writer) -> Writer {
        match self {
            Op::Check(path, version) | Op::Delete(path, version) => {
                writer.text(path).int(version.unwrap_or(ANY_VERSION))
            }
            Op::SetData(path, data, version) => {
                writer.text(path).bytes(data).int(version.unwrap_or(ANY_VERSION))
            }
            Op::Create(path, data, mode, acl) => {
                let (scheme, id) = match acl {
                    Acl::Open => ("world", "anyone"),
                    Acl::Creator => ("auth", ""),
                };
                let entries = 1;
                let writer = writer.text(path).bytes(data).int(entries);
                writer.int(ALL).text(scheme).text(id).int(*mode as i32)
            }
        }
    }
}

impl Done {
    /// Whether this is the result of an operation of this kind.
    fn answers(&self, op: &Op) -> bool {
        matches!(
            (self, op),
            (Done::Checked, Op::Check(..))
                | (Done::Created(_), Op::Create(..))
                | (Done::Deleted, Op::Delete(..))
                | (Done::Set(_), Op::SetData(..))
        )
    }

    /// Reads the result of an operation with this number.
    pub(super) fn read(opcode: i32, reader: &mut Reader<'_>) -> Read<Self> {
        Ok(match opcode {
            opcode::CHECK => Done::Checked,
            opcode::CREATE => Done::Created(reader.text()?),
            // Versions after 3.8.0 may answer a transaction with the node's state, too.
            opcode::CREATE_2 | opcode::CREATE_CONTAINER => {
                let path = reader.text()?;
                Stat::read(reader)?;
                Done::Created(path)
            }
            opcode::DELETE => Done::Deleted,
            opcode::SET_DATA => Done::Set(Stat::read(reader)?),
            _ => return Err(Malformed),
        })
    }
}

impl Stat {
    pub(super) fn read(reader: &mut Reader<'_>) -> Read<Self> {
        Ok(Stat {
            czxid: reader.long()?,
            mzxid: reader.long()?,
            ctime: reader.long()?,
            mtime: reader.long()?,
            version: reader.int()?,
            cversion: reader.int()?,
            aversion: reader.int()?,
            ephemeral_owner: reader.long()?,
            data_length: reader.int()?,
            num_children: reader.int()?,
            pzxid: reader.long()?,
        })
    }
}

/// Writes the operations of a transaction, each behind a header, and a header that ends them.
pub(super) fn multi(ops: &[Op]) -> Vec<u8> {
    let header = |writer: Writer, kind, is_end| writer.int(kind).bool(is_end).int(-1);
    let write = |writer, op: &Op| op.write(header(writer, op.opcode(), false));
    let writer = ops.iter().fold(Writer::default(), write);
    header(writer, -1, true).into_bytes()
}

pub(super) fn data(reader: &mut Reader<'_>) -> Read<(Vec<u8>, Stat)> {
    Ok((reader.bytes()?, Stat::read(reader)?))
}

pub(super) fn children(reader: &mut Reader<'_>) -> Read<(Vec<String>, Stat)> {
    Ok((reader.texts()?, Stat::read(reader)?))
}

/// Reads the results of a transaction. The header of its reply has no error even if the transaction failed: the results
/// then are errors, with the number 0 for the operations before the first one that failed.
///
/// Each operation must have its own result: a reply without one, or with that of another operation, is no answer.
pub(super) fn outcome(ops: &[Op], zxid: i64, reader: &mut Reader<'_>) -> Read<Outcome> {
    let (mut results, mut codes) = (Vec::new(), Vec::new());
    loop {
        let (kind, is_end, _) = (reader.int()?, reader.bool()?, reader.int()?);
        match kind {
            _ if is_end => break,
            opcode::ERROR => codes.push(Code(reader.int()?)),
            kind => results.push(Done::read(kind, reader)?),
        }
    }
    let are_answers = || results.iter().zip(ops).all(|(result, op)| result.answers(op));
    match codes.iter().position(|code| code.0 != 0) {
        Some(index) if index < ops.len() => Ok(Outcome::Refused {
            index,
            code: codes[index],
        }),
        None if results.len() == ops.len() && are_answers() => Ok(Outcome::Done { zxid, results }),
        _ => Err(Malformed),
    }
}

#[cfg(test)]
mod tests;
