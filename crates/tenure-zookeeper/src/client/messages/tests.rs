//! Tests of the decoder: known replies, and replies that are damaged or random.

use super::super::exchange::Exchange;
use super::super::frames::frames;
use super::super::watch::Registry;
use super::*;
use std::time::Duration;

/// A node's state in which each field has another value.
const STAT: Stat = Stat {
    czxid: 1,
    mzxid: 2,
    ctime: 3,
    mtime: 4,
    version: 5,
    cversion: 6,
    aversion: 7,
    ephemeral_owner: 8,
    data_length: 9,
    num_children: 10,
    pzxid: 11,
};

fn write_stat(writer: Writer) -> Writer {
    let writer = writer.long(1).long(2).long(3).long(4).int(5).int(6).int(7);
    writer.long(8).int(9).int(10).long(11)
}

fn result(writer: Writer, kind: i32) -> Writer {
    writer.int(kind).bool(false).int(0)
}

fn end(writer: Writer) -> Vec<u8> {
    writer.int(-1).bool(true).int(-1).into_bytes()
}

/// The reply to a transaction in which operations fail with these codes.
fn failed(codes: &[i32]) -> Vec<u8> {
    let mut writer = Writer::default();
    for code in codes {
        writer = writer.int(opcode::ERROR).bool(false).int(*code).int(*code);
    }
    end(writer)
}

/// The outcome of operations in a body of the change 7.
fn transaction(ops: &[Op], body: &[u8]) -> Read<Outcome> {
    outcome(ops, 7, &mut Reader(body))
}

fn delete() -> Op {
    Op::Delete("/a".to_owned(), None)
}

fn create() -> Op {
    Op::Create("/a".to_owned(), Vec::new(), Mode::Ephemeral, Acl::Open)
}

#[test]
fn a_failed_transaction_names_its_first_failure() {
    for (codes, index, code) in [
        (&[-101][..], 0, Code::NO_NODE),
        (&[0, 0, -103, -2, -2], 2, Code::BAD_VERSION),
    ] {
        let refused = Outcome::Refused { index, code };
        assert_eq!(
            transaction(&vec![delete(); codes.len()], &failed(codes)),
            Ok(refused)
        );
    }
    // Errors of number 0 alone say nothing.
    assert_eq!(transaction(&[delete()], &failed(&[0])), Err(Malformed));
}

#[test]
fn a_transaction_without_a_result_for_each_operation_is_malformed() {
    let deleted = || result(Writer::default(), opcode::DELETE);
    let two = [delete(), create()];
    for body in [
        end(Writer::default()),
        end(deleted()),
        end(result(deleted(), opcode::DELETE)),
        end(result(deleted(), opcode::CHECK)),
        end(result(
            result(deleted(), opcode::CREATE).text("/a"),
            opcode::DELETE,
        )),
        failed(&[0, 0, -101]),
    ] {
        assert_eq!(transaction(&two, &body), Err(Malformed), "{body:?}");
    }
}

#[test]
fn a_transaction_may_return_the_states_of_new_nodes() {
    let without = result(Writer::default(), opcode::CREATE).text("/a");
    let with = write_stat(result(without, opcode::CREATE_2).text("/b"));
    let set = write_stat(result(with, opcode::SET_DATA));
    let checked = result(result(set, opcode::DELETE), opcode::CHECK);
    let results = vec![
        Done::Created("/a".to_owned()),
        Done::Created("/b".to_owned()),
        Done::Set(STAT),
        Done::Deleted,
        Done::Checked,
    ];
    let ops = [
        create(),
        create(),
        Op::SetData("/a".to_owned(), Vec::new(), None),
        delete(),
        Op::Check("/a".to_owned(), None),
    ];
    assert_eq!(
        transaction(&ops, &end(checked)),
        Ok(Outcome::Done { zxid: 7, results })
    );
    let unknown = end(result(Writer::default(), 99));
    assert_eq!(transaction(&[delete()], &unknown), Err(Malformed));
}

#[test]
fn a_list_that_claims_to_be_long_takes_no_memory() {
    for count in [2, i32::MAX] {
        let claims = write_stat(Writer::default().int(count).text("a"));
        let claims = claims.into_bytes();
        assert_eq!(children(&mut Reader(&claims[..8])), Err(Malformed), "{count}");
    }
    let null = write_stat(Writer::default().int(-1)).into_bytes();
    assert_eq!(children(&mut Reader(&null)), Ok((Vec::new(), STAT)));
}

/// Replies of every kind, with their headers.
fn samples() -> Vec<Vec<u8>> {
    let connected = Writer::default().int(0).int(10_000).long(77).bytes(&[7; 16]);
    let event = Writer::default().int(4).int(3).text("/a/b").into_bytes();
    let set = write_stat(result(Writer::default(), opcode::SET_DATA));
    let set = result(result(set, opcode::CREATE).text("/a"), opcode::CHECK);
    let listed = write_stat(Writer::default().int(2).text("lock-0000000001").text("b"));
    let data = write_stat(Writer::default().bytes(b"some data"));
    let created = write_stat(Writer::default().text("/a/n-0000000001"));
    let bodies = [
        event,
        write_stat(Writer::default()).into_bytes(),
        end(set),
        failed(&[0, -101, -2]),
        listed.into_bytes(),
        data.into_bytes(),
        created.into_bytes(),
    ];
    let with_header = bodies.into_iter().enumerate().map(|(number, body)| {
        let xid = if number == 0 { xid::EVENT } else { 1 };
        let mut message = Writer::default().int(xid).long(9).int(0).into_bytes();
        message.extend(body);
        message
    });
    with_header.chain([connected.bool(false).into_bytes()]).collect()
}

/// Gives a message to every decoder. None may panic.
fn decode(message: &[u8]) {
    let _ = ConnectReply::read(message);
    let Ok((header, body)) = ReplyHeader::read(message) else {
        return;
    };
    let reader = || Reader(body);
    let _ = (event(body), Stat::read(&mut reader()));
    let _ = (reader().text(), data(&mut reader()));
    let _ = outcome(&[delete(), create()], header.zxid, &mut reader());
    if let Ok((children, _)) = children(&mut reader()) {
        assert!(children.len() <= body.len() / 4);
    }
}

/// A generator of numbers (SplitMix64).
struct Numbers(u64);

impl Numbers {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    fn below(&mut self, limit: usize) -> usize {
        (self.next() % limit as u64) as usize
    }
}

/// Random bytes, or a sample with some bytes changed, removed, or replaced by an extreme number.
fn input(numbers: &mut Numbers, samples: &[Vec<u8>]) -> Vec<u8> {
    if numbers.below(4) == 0 {
        let length = numbers.below(100);
        return (0..length).map(|_| numbers.next() as u8).collect();
    }
    let mut message = samples[numbers.below(samples.len())].clone();
    for _ in 0..=numbers.below(4) {
        if message.is_empty() {
            break;
        }
        let at = numbers.below(message.len());
        match numbers.below(4) {
            0 => message[at] = numbers.next() as u8,
            1 => message.truncate(at),
            2 => drop(message.remove(at)),
            _ => {
                let extremes = [i32::MIN, -1, 0, 1, 4, 1 << 20, i32::MAX];
                let extreme = extremes[numbers.below(extremes.len())].to_be_bytes();
                let end = message.len().min(at + extreme.len());
                message.splice(at..end, extreme);
            }
        }
    }
    message
}

/// Decodes this number of random inputs, and gives them to a connection, which has sent no request.
async fn decode_many(count: u64) {
    let samples = samples();
    samples.iter().for_each(|sample| decode(sample));
    let mut numbers = Numbers(42);
    let (mut registry, mut last_zxid, now) = (Registry::default(), 0, tokio::time::Instant::now());
    let (_, writer) = frames(Box::new(tokio::io::empty()));
    let mut exchange = Exchange::new(writer, Duration::from_secs(10), now);
    for _ in 0..count {
        let message = input(&mut numbers, &samples);
        decode(&message);
        let _ = exchange.receive(&message, &mut registry, &mut last_zxid, now);
        assert!(!exchange.is_closed, "{message:?}");
    }
}

#[tokio::test]
async fn damaged_and_random_messages_never_panic() {
    decode_many(200_000).await;
}

mod long {
    #[tokio::test]
    async fn ten_million_damaged_messages_never_panic() {
        super::decode_many(10_000_000).await;
    }
}
