//! What the agent holds in memory does not grow with what it has seen.

use std::alloc::System;

use cap::Cap;
use gpuledger_agent::node::Node;
use gpuledger_wire::{Answer, Outcome, PROTOCOL, RecordAnswer, RecordName, Report, Settings};

use super::machine::{BOOTED_FOR, Machine, devices, state};
use super::{HOUR_US, S};

/// Counts what is allocated and not freed. The fake driver allocates by itself and is not counted.
#[global_allocator]
static ALLOCATOR: Cap<System> = Cap::new(System, usize::MAX);

/// Takes everything that is finished, and tells where to cut.
fn answer(report: &Report) -> Answer {
    let taken = |segment: &gpuledger_wire::Segment| {
        let hour_us = segment.start_us - segment.start_us.rem_euclid(HOUR_US);
        let record = Some(RecordName { hour_us, number: segment.number });
        RecordAnswer { record, outcome: Outcome::Accepted, code: None, message: String::new() }
    };
    let settings =
        Settings { version: "1".into(), cuts_us: Vec::new(), sample_interval_us: 10 * S, report_interval_us: 60 * S };
    Answer { protocol: PROTOCOL, records: report.segments.iter().map(taken).collect(), head: None, settings }
}

/// Looks at two GPUs each half a minute through an hour; every ten minutes another job is on the first.
fn an_hour(machine: &Machine, node: &mut Node, hour: i64) {
    for look in 0..120 {
        let second = hour * 3_600 + look * 30;
        if look % 20 == 0 {
            let job = hour * 6 + look / 20;
            // The number of a process is given out again.
            machine.process(700, &(50_000 + job).to_string(), second);
        }
        machine.look(node, second);
        if look % 2 == 1 {
            let report = node.report((BOOTED_FOR + second) * S);
            node.answered(&answer(&report));
        }
    }
}

#[test]
fn what_is_held_in_memory_does_not_grow() {
    let watched = state(0, "", &[700]);
    let machine = Machine::new(&devices(&[&watched, &watched]));
    let mut node = machine.node(30, |_, _| {});
    let held = [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11].map(|hour| {
        an_hour(&machine, &mut node, hour);
        ALLOCATOR.allocated()
    });
    // From the second hour on nothing is new but names; some of them are a digit longer than others.
    // From the second hour on, nothing is new but names, and they are as long as those before.
    assert!(held[1..].iter().all(|bytes| *bytes == held[1]) && held[1] < 1 << 20, "{held:?}");
}
