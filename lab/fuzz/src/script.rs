//! Scripts of njs, as texts.

use std::rc::Rc;
use std::time::Duration;

use script::{Facts, FaultKind, Instance, Limits, NoHost, Program};

/// What a script may use: enough for a few thousand steps of the engine.
const LIMITS: Limits = Limits {
    memory_bytes: 4 << 20,
    stack_bytes: 256 << 10,
    stretch: Duration::from_millis(50),
    cpu: Duration::from_millis(100),
};

/// A text as a script: whatever it does, it ends within its limits, with a value or with an error
/// that has a text; and after a limit has ended it, nothing of it runs any more.
pub fn run(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    // These reach files and processes of the machine.
    if text.contains("import") || text.contains("process") {
        return;
    }
    let program = Rc::new(Program::default());
    let made = Instance::new(program, LIMITS, Rc::new(Facts::default()), &mut NoHost);
    let mut instance = made.expect("an engine without modules can be made");
    let Err(fault) = instance.evaluate(&mut NoHost, "script.js", text) else { return };
    assert!(!fault.message.is_empty());
    let is_ended = matches!(fault.kind, FaultKind::Stretch | FaultKind::Cpu);
    let again = instance.evaluate(&mut NoHost, "again.js", "1");
    let refused = matches!(again, Err(fault) if fault.kind == FaultKind::Ended);
    assert_eq!(refused, is_ended);
}
