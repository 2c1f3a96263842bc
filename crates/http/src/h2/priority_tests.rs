//! The order of frames, without a connection.

use std::task::Waker;

use bytes::Bytes;
use http_wire::h2::frame::{ErrorCode, FrameHead, HEAD_LEN};
use http_wire::h2::read::Dependency;
use http_wire::priority::Parameters;
use mem::{Buf, Chain, Page};

use super::mux::{Half, State};
use super::priority::Asked;

const STREAMS: u32 = 10;

/// A connection with windows that never matter, and frames of 1,000 bytes.
pub(super) fn connection() -> State {
    let mut state = State::new(None);
    state.send.add(1 << 30).unwrap();
    state.peer.window = 1 << 30;
    state
}

pub(super) fn open(state: &mut State, id: u32, priority: &str) -> usize {
    let field = (!priority.is_empty()).then(|| Parameters::parse(priority.as_bytes()).unwrap());
    open_as(state, id, &Asked { field, dependency: None, is_tunnel: false })
}

fn open_as(state: &mut State, id: u32, asked: &Asked) -> usize {
    let i = state.open(id, Half::Ended, 0).slot as usize;
    state.streams[i].chunk = 1000;
    state.opened(i, asked, STREAMS);
    i
}

/// A request hands over `n` bytes, and the end with them.
fn give(state: &mut State, i: usize, n: usize, ends: bool) {
    let entry = &mut state.streams[i];
    entry.queue.push_bytes(Bytes::from(vec![b'x'; n]));
    entry.queued += n as u64;
    entry.ends = ends;
    state.schedule.add(i, entry);
}

/// Streams with 3,000 bytes each, by number and priority.
fn three_frames_of(streams: &[(u32, &str)]) -> State {
    let mut state = connection();
    for (id, priority) in streams {
        let i = open(&mut state, *id, priority);
        give(&mut state, i, 3000, true);
    }
    state
}

/// The stream and the length of each frame in the output.
pub(super) fn frames(state: &mut State) -> Vec<(u32, u32)> {
    let mut output: Chain = std::mem::take(&mut state.output);
    state.out_len = 0;
    let mut bytes = Vec::new();
    while let Some(buf) = output.pop_front() {
        bytes.extend_from_slice(buf.memory().unwrap());
    }
    let mut found = Vec::new();
    let mut rest = &bytes[..];
    while let Some(head) = FrameHead::parse(rest) {
        found.push((head.stream, head.len));
        rest = &rest[HEAD_LEN + head.len as usize..];
    }
    assert!(rest.is_empty());
    found
}

/// The streams of the frames that are made until there is nothing to send.
fn order(state: &mut State) -> Vec<u32> {
    assert!(!state.pump());
    frames(state).into_iter().map(|(id, _)| id).collect()
}

#[test]
fn more_urgent_streams_go_first() {
    let mut state = three_frames_of(&[(1, "u=5"), (3, "u=0"), (5, "u=3, i"), (7, "")]);
    assert_eq!(order(&mut state), [3, 3, 3, 7, 5, 7, 5, 7, 5, 1, 1, 1]);
    assert!(state.schedule.is_empty());
}

#[test]
fn responses_that_are_of_use_as_a_whole_go_in_the_order_of_requests() {
    let mut state = connection();
    let slots = [1, 3, 5].map(|id| open(&mut state, id, "u=3"));
    for i in slots.into_iter().rev() {
        give(&mut state, i, 3000, true);
    }
    assert_eq!(order(&mut state), [1, 1, 1, 3, 3, 3, 5, 5, 5]);
}

#[test]
fn one_that_ran_empty_keeps_its_place() {
    let mut state = connection();
    let [one, three, five] = [1, 3, 5].map(|id| open(&mut state, id, "u=3"));
    give(&mut state, one, 1000, false);
    give(&mut state, five, 2000, true);
    assert_eq!(order(&mut state)[..2], [1, 5]);
    give(&mut state, three, 2000, true);
    give(&mut state, one, 2000, true);
    assert_eq!(order(&mut state), [1, 1, 3, 3]);
}

#[test]
fn responses_that_are_of_use_in_parts_take_turns() {
    let mut state = three_frames_of(&[(1, "i"), (3, "i"), (5, "i")]);
    assert_eq!(order(&mut state), [1, 3, 5, 1, 3, 5, 1, 3, 5]);
}

#[test]
fn neither_kind_waits_for_the_end_of_the_other() {
    let mut state = three_frames_of(&[(1, "u=3"), (3, "u=3"), (5, "i"), (7, "i")]);
    assert_eq!(order(&mut state), [1, 5, 1, 7, 1, 5, 3, 7, 3, 5, 3, 7]);
}

#[test]
fn all_take_turns_where_the_client_says_nothing() {
    let mut state = three_frames_of(&[(1, ""), (3, ""), (5, "")]);
    assert_eq!(order(&mut state), [1, 3, 5, 1, 3, 5, 1, 3, 5]);
    // A client that has said something means the defaults where it does not.
    let mut state = three_frames_of(&[(1, "u=7"), (3, ""), (5, "")]);
    assert_eq!(order(&mut state), [3, 3, 3, 5, 5, 5, 1, 1, 1]);
}

#[test]
fn a_tunnel_takes_turns() {
    let mut state = connection();
    for (id, field, is_tunnel) in [(1, "u=3", false), (3, "u=3", true), (5, "i=?0", true)] {
        let field = Parameters::parse(field.as_bytes());
        let i = open_as(&mut state, id, &Asked { field, dependency: None, is_tunnel });
        give(&mut state, i, 2000, true);
    }
    assert_eq!(order(&mut state), [1, 3, 1, 3, 5, 5]);
}

#[test]
fn a_stream_without_a_window_does_not_block_others() {
    let mut state = three_frames_of(&[(1, "u=0"), (3, "u=0"), (5, "u=7")]);
    let window = state.streams[0].send.left();
    assert!(state.streams[0].send.take(window - 1500));
    assert!(!state.pump());
    let lengths = [(1, 1000), (1, 500), (3, 1000), (3, 1000), (3, 1000)];
    assert_eq!(frames(&mut state)[..5], lengths);
    state.streams[0].send.add(10_000).unwrap();
    state.may_send(0);
    assert!(!state.pump());
    assert_eq!(frames(&mut state), [(1, 1000), (1, 500)]);
}

#[test]
fn a_part_of_a_page_is_a_frame_as_a_whole_one_is() {
    let mut state = connection();
    let i = open(&mut state, 1, "");
    let entry = &mut state.streams[i];
    entry.chunk = 8192;
    for _ in 0..2 {
        let mut page = Page::try_get_behind(HEAD_LEN, 8192).unwrap();
        page.extend_from_slice(&[b'x'; 8192]);
        entry.queue.push(Buf::Page(page));
    }
    entry.queued = 16_384;
    entry.ends = true;
    let window = entry.send.left();
    assert!(entry.send.take(window - 16_383));
    state.schedule.add(i, &mut state.streams[i]);
    assert!(!state.pump());
    assert_eq!(frames(&mut state), [(1, 8192), (1, 8191)]);
}

#[test]
fn all_wait_for_the_window_of_the_connection() {
    let mut state = three_frames_of(&[(1, "u=5"), (3, "u=0")]);
    let window = state.send.left();
    assert!(state.send.take(window - 3500));
    assert_eq!(order(&mut state), [3, 3, 3, 1]);
    assert_eq!(order(&mut state), [0_u32; 0]);
    let more = open(&mut state, 5, "u=1");
    give(&mut state, more, 1000, true);
    state.send.add(10_000).unwrap();
    assert_eq!(order(&mut state), [5, 1, 1, 1]);
}

/// The request of a stream waits for room.
fn waits(state: &mut State, i: usize) {
    state.streams[i].room = Some(Waker::noop().clone());
}

#[test]
fn those_behind_a_request_that_was_woken_wait_for_it() {
    let mut state = three_frames_of(&[(1, "u=0"), (3, "u=1")]);
    state.streams[0].ends = false;
    waits(&mut state, 0);
    assert!(state.pump(), "the request of the first is about to run");
    assert_eq!(frames(&mut state), [(1, 1000), (1, 1000), (1, 1000)]);
    assert!(state.pump());
    give(&mut state, 0, 500, true);
    state.schedule.next_round();
    assert_eq!(order(&mut state), [1, 3, 3, 3]);
}

#[test]
fn a_request_that_makes_nothing_blocks_nobody() {
    let mut state = three_frames_of(&[(1, "u=0"), (3, "u=1")]);
    state.streams[0].ends = false;
    waits(&mut state, 0);
    assert!(state.pump());
    state.schedule.next_round();
    assert_eq!(order(&mut state), [1, 1, 1, 3, 3, 3]);
}

#[test]
fn peers_of_a_request_that_was_woken_go_on() {
    let mut state = three_frames_of(&[(1, "i"), (3, "i"), (5, "u=4")]);
    state.streams[0].ends = false;
    waits(&mut state, 0);
    assert!(state.pump());
    let streams: Vec<u32> = frames(&mut state).into_iter().map(|(id, _)| id).collect();
    assert_eq!(streams, [1, 3, 1, 3, 1, 3]);
}

#[test]
fn a_frame_that_would_be_short_waits_for_what_its_request_makes() {
    let mut state = connection();
    let i = open(&mut state, 1, "");
    let window = state.streams[i].send.left();
    assert!(state.streams[i].send.take(window));
    give(&mut state, i, 1, false);
    waits(&mut state, i);
    assert!(!state.pump());
    state.streams[i].send.add(1000).unwrap();
    state.may_send(i);
    assert!(state.pump(), "a byte alone is not sent");
    give(&mut state, i, 80, true);
    state.schedule.next_round();
    assert!(!state.pump());
    assert_eq!(frames(&mut state), [(1, 81)]);
}

#[test]
fn a_response_overrides_what_it_names() {
    let mut state = three_frames_of(&[(1, "u=5, i"), (3, "u=4"), (5, "u=1, i")]);
    state.responds(0, Parameters::parse(b"u=1").unwrap());
    assert_eq!(order(&mut state), [5, 1, 5, 1, 5, 1, 3, 3, 3]);
    let mut state = three_frames_of(&[(1, "u=5"), (3, "u=4")]);
    state.responds(0, Parameters::parse(b"u=1").unwrap());
    state.priority_update(1, b"u=7, i", 3, STREAMS).unwrap();
    assert_eq!(order(&mut state), [1, 1, 1, 3, 3, 3], "nor does an update change that");
}

#[test]
fn priorities_change_while_streams_wait() {
    let mut state = three_frames_of(&[(1, "u=2"), (3, "u=3")]);
    state.priority_update(3, b"u=0", 3, STREAMS).unwrap();
    assert_eq!(order(&mut state), [3, 3, 3, 1, 1, 1]);
    let mut state = three_frames_of(&[(1, "u=2"), (3, "u=3")]);
    state.priority_update(1, b"", 3, STREAMS).unwrap();
    state.priority_update(3, b"u=0,", 3, STREAMS).unwrap();
    state.priority_update(99, b"u=0", 101, STREAMS).unwrap();
    assert_eq!(order(&mut state), [1, 1, 1, 3, 3, 3], "no dictionary, and a closed stream");
}

#[test]
fn a_priority_may_come_before_its_stream() {
    let mut state = connection();
    state.priority_update(5, b"u=6", 0, STREAMS).unwrap();
    state.priority_update(5, b"u=0", 0, STREAMS).unwrap();
    state.priority_update(3, b"u=1", 0, STREAMS).unwrap();
    for (id, field) in [(1, "u=2"), (5, "u=7")] {
        let i = open(&mut state, id, field);
        give(&mut state, i, 1000, true);
    }
    assert_eq!(order(&mut state), [5, 1]);
    assert!(state.early.is_empty(), "stream 3 will never be opened");
}

#[test]
fn streams_that_are_not_open_count_as_if_they_were() {
    let mut state = connection();
    open(&mut state, 1, "");
    for id in (3..3 + 2 * (STREAMS - 1)).step_by(2) {
        state.priority_update(id, b"u=1", 1, STREAMS).unwrap();
        state.priority_update(id, b"u=2", 1, STREAMS).unwrap();
    }
    let fault = state.priority_update(101, b"u=1", 1, STREAMS).unwrap_err();
    assert_eq!(fault.code, ErrorCode::PROTOCOL_ERROR);
    let fault = state.priority_update(2, b"u=1", 1, STREAMS).unwrap_err();
    assert_eq!(fault.code, ErrorCode::PROTOCOL_ERROR, "nothing was pushed");
    for id in (3..10_003).step_by(2) {
        state.priority_update(id, b"u=1", 1, u32::MAX).unwrap();
    }
    assert_eq!(state.early.len(), 256);
}

fn on(stream: u32, weight: u16) -> Dependency {
    Dependency { on: stream, exclusive: false, weight }
}

#[test]
fn a_tree_takes_the_streams_that_are_there() {
    let mut state = three_frames_of(&[(1, ""), (3, ""), (5, "")]);
    state.prioritize(1, on(5, 16), STREAMS);
    let asked = Asked { field: None, dependency: Some(on(5, 256)), is_tunnel: false };
    let i = open_as(&mut state, 7, &asked);
    give(&mut state, i, 3000, true);
    assert_eq!(order(&mut state), [3, 5, 3, 5, 3, 5, 7, 7, 7, 1, 1, 1]);
    assert!(state.schedule.is_empty());
}

#[test]
fn a_newer_signal_ends_the_tree() {
    let mut state = connection();
    state.prioritize(1, on(3, 16), STREAMS);
    for id in [1, 3] {
        let i = open(&mut state, id, "");
        give(&mut state, i, 2000, true);
    }
    assert!(state.schedule.tree.is_some());
    let i = open(&mut state, 5, "u=1");
    give(&mut state, i, 1000, true);
    assert!(state.schedule.tree.is_none());
    state.prioritize(1, on(3, 16), STREAMS);
    assert!(state.schedule.tree.is_none(), "nor does it come back");
    assert_eq!(order(&mut state), [5, 1, 1, 3, 3]);
}

#[test]
fn a_client_that_announces_that_it_has_no_tree_gets_none() {
    let mut state = connection();
    state.peer.no_tree = true;
    state.prioritize(1, on(3, 16), STREAMS);
    assert!(state.schedule.tree.is_none());
}
