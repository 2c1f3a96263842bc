//! Tasks that wait for each other when memory runs short. Alone in its process, whose memory it
//! limits.

use std::cell::RefCell;
use std::rc::Rc;

use event::task::{gather, next_turn};
use event::{Loop, Options};
use rustix::process::{Resource, Rlimit, setrlimit};

#[global_allocator]
static ALLOCATOR: os::memory::Allocator = os::memory::Allocator;

const TASKS: usize = 40;

/// Has an allocation fail, whose memory the reserve then gives.
fn run_short() {
    let blocks: Vec<Vec<u8>> = (0..1 << 16)
        .map_while(|_| {
            let mut block = Vec::new();
            let got = !os::memory::is_low() && block.try_reserve_exact(64 << 10).is_ok();
            got.then_some(block)
        })
        .collect();
    assert!(os::memory::is_low(), "{} blocks", blocks.len());
}

/// The steps of tasks of which one runs short in a step: the number of the step, and of the task.
async fn steps(short: (u8, usize)) -> Vec<(u8, usize)> {
    let steps = Rc::new(RefCell::new(Vec::with_capacity(2 * TASKS)));
    for task in 0..TASKS {
        let steps = steps.clone();
        let done = move |step| {
            steps.borrow_mut().push((step, task));
            if (step, task) == short {
                run_short();
            }
        };
        event::spawn(async move {
            done(1);
            gather().await;
            done(2);
        });
    }
    for _ in 0..4 {
        next_turn().await;
    }
    steps.take()
}

#[test]
fn no_task_that_waits_for_others_is_lost_when_memory_runs_short() {
    os::memory::keep_reserve();
    let text = std::fs::read_to_string("/proc/self/statm").expect("the size of this process");
    let pages: u64 = text.split(' ').next().and_then(|n| n.parse().ok()).expect("a number");
    let size = pages * os::limits::page_size() as u64;
    let most = Some(size + (8 << 20));
    setrlimit(Resource::As, Rlimit { current: most, maximum: most }).expect("a limit");
    let mut event_loop = Loop::new(Options::default()).expect("a loop");
    let done = event_loop.block_on(async {
        // While some wait, while the last of a full group comes, and in the group's next step.
        for short in [(1, 5), (1, 31), (2, 3), (2, 36)] {
            let steps = steps(short).await;
            for step in [1, 2] {
                let mut tasks: Vec<usize> =
                    steps.iter().filter(|s| s.0 == step).map(|s| s.1).collect();
                tasks.sort_unstable();
                assert!(tasks.into_iter().eq(0..TASKS), "{short:?}: {steps:?}");
            }
            // The reserve is whole again.
            event::testing::until(|| !os::memory::is_low()).await;
        }
    });
    done.expect("the loop runs");
}
