//! Connections that count as active.

use std::ops::Deref;
use std::rc::Rc;

use engine::life::Work;
use engine::stats::Field;

use crate::server::HttpMain;

/// The engine, which counts a connection as active while it lives, whatever way it ends.
pub(crate) struct Counted(pub Rc<HttpMain>, #[allow(dead_code, reason = "kept for its drop")] Work);

impl Counted {
    pub fn new(main: Rc<HttpMain>) -> Counted {
        main.stats.add(Field::Active, 1);
        let work = main.life.work();
        Counted(main, work)
    }
}

impl Deref for Counted {
    type Target = Rc<HttpMain>;

    fn deref(&self) -> &Rc<HttpMain> {
        &self.0
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.stats.sub(Field::Active, 1);
    }
}
