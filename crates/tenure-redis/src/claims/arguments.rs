//! Encodes a claim and its client as keys and arguments of a script call.

use std::borrow::Cow;

use tenure_backend::{ClientId, Fairness, Mode, ServerClock};

use crate::claims::names::{Owner, client_key, in_flight_key};
use crate::claims::script::Command;
use crate::claims::table::{ClientRecord, Placement};
use crate::profile::{grants, lease_ms};

/// Adds two keys to a call: that of the client's record, and `tenure_in_flight`, which exists while requests of the
/// client's ended claims may be in flight.
pub(crate) fn write_client(command: &mut Command, client: ClientId) {
    command.arg(&client_key(client)).arg(&in_flight_key(client));
}

/// Adds the arguments from which a script places a claim. `labelled` is set for the scripts of strings, which need the
/// label of unfair claims too.
pub(crate) fn write_placement(
    command: &mut Command,
    placement: &Placement<'_>,
    clock: &ServerClock,
    labelled: bool,
) {
    let (claim, record) = (placement.claim, &placement.client);
    command
        .arg(Owner::of(claim.at.id).as_bytes())
        .arg(lease_ms(claim.lease))
        .arg(clock.at(placement.not_after))
        .arg(grants(claim));
    let mode = mode_code(claim.mode);
    match claim.fairness {
        Fairness::Fifo => _ = command.arg(&*claim.label).arg("1"),
        Fairness::Unfair if labelled => _ = command.arg(&*claim.label).arg(""),
        Fairness::Unfair if record.is_some() || !mode.is_empty() => _ = command.arg("").arg(""),
        Fairness::Unfair => {}
    }
    if !mode.is_empty() {
        command.arg(&mode);
    }
    if let Some(record) = record {
        write_record(command, record);
    }
}

/// Adds the time to live and the label of a client's record.
pub(crate) fn write_record(command: &mut Command, record: &ClientRecord) {
    command.arg(record.ttl.as_millis()).arg(&*record.label);
}

/// A claim's mode as scripts know it: empty for a mutex, `R` or `W` for a reader or a writer, `TAKE/SIZE` for permits.
fn mode_code(mode: Mode) -> Cow<'static, str> {
    match mode {
        Mode::Exclusive => "".into(),
        Mode::Read => "R".into(),
        Mode::Write => "W".into(),
        Mode::Permits { take, of } => format!("{take}/{of}").into(),
    }
}
