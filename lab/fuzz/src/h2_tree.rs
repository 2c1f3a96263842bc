//! The tree of RFC 7540: a slow one says the same about who depends on whom; the next stream is
//! ready and waits for nobody; the number of nodes is bounded; each ready stream has its turn.

use std::collections::BTreeMap;

use http_wire::h2::read::Dependency;
use http_wire::h2::tree::{Place, Tree};

/// Open streams.
const STREAMS: usize = 16;

/// Numbers of streams, the root's among them: so few that none is forgotten, and more.
const FEW: u32 = 40;
const MANY: u32 = 250;

/// The streams that are open, and whether they are ready.
type Open = BTreeMap<u32, (Place, bool)>;

/// The dependencies, by the RFC's words.
#[derive(Default)]
struct Slow {
    parents: BTreeMap<u32, (u32, u16)>,
}

impl Slow {
    fn is_below(&self, id: u32, other: u32) -> bool {
        let up = |id: &u32| self.parents.get(id).map(|(parent, _)| *parent);
        std::iter::successors(Some(id), up).skip(1).any(|above| above == other)
    }

    fn prioritize(&mut self, id: u32, dependency: Dependency) {
        let Dependency { on, exclusive, weight } = dependency;
        if id == 0 || on == id {
            return;
        }
        self.parents.entry(id).or_insert((0, 16));
        if on != 0 && !self.parents.contains_key(&on) {
            self.parents.insert(id, (0, 16));
            return;
        }
        if self.is_below(on, id) {
            let above = self.parents[&id].0;
            self.parents.entry(on).and_modify(|place| place.0 = above);
        }
        if exclusive {
            let others = self.parents.iter_mut().filter(|(other, _)| **other != id);
            others.filter(|(_, place)| place.0 == on).for_each(|(_, place)| place.0 = id);
        }
        self.parents.insert(id, (on, weight));
    }
}

/// Runs operations of four bytes each. With many numbers of streams nodes are forgotten, which the
/// slow tree does not do; then the tree alone is looked at.
pub fn run(data: &[u8]) {
    let Some((mode, data)) = data.split_first() else { return };
    let ids = if mode & 1 == 0 { FEW } else { MANY };
    let mut tree = Tree::new(STREAMS);
    let mut slow = Slow::default();
    let mut open: Open = BTreeMap::new();
    for operation in data.as_chunks::<4>().0 {
        let [what, id, on, weight] = *operation;
        let (id, on) = (u32::from(id) % ids, u32::from(on) % ids);
        let weight = u16::from(weight) + 1;
        let dependency = Dependency { on, exclusive: what & 0x80 != 0, weight };
        match what % 8 {
            0 | 1 => {
                tree.prioritize(id, dependency);
                slow.prioritize(id, dependency);
            }
            2 | 3 => {
                let given = (what & 0x40 != 0).then_some(dependency);
                let place = tree.open(id, id, given);
                let may = id != 0 && !open.contains_key(&id) && open.len() < STREAMS;
                assert_eq!(place.is_some(), may);
                if let Some(place) = place {
                    open.insert(id, (place, false));
                    slow.parents.entry(id).or_insert((0, 16));
                    if let Some(dependency) = given {
                        slow.prioritize(id, dependency);
                    }
                }
            }
            4 => {
                if let Some((place, _)) = open.remove(&id) {
                    tree.close(place);
                }
            }
            5 => {
                if let Some((place, ready)) = open.get_mut(&id) {
                    *ready = what & 0x80 != 0;
                    tree.set_ready(*place, *ready);
                }
            }
            6 => {
                if let Some((place, _)) = open.get(&id) {
                    tree.sent(*place, usize::from(weight) * 64);
                }
            }
            _ if ids == MANY => tree.shrink(),
            _ => all_have_a_turn(&tree, &open, ids),
        }
        check(&tree, &open, ids);
        if ids == FEW {
            for id in 0..ids {
                assert_eq!(tree.dependency(id), slow.parents.get(&id).copied(), "stream {id}");
            }
        }
    }
    all_have_a_turn(&tree, &open, ids);
}

/// The stream that is next is ready and waits for nobody, and the tree is one.
fn check(tree: &Tree, open: &Open, ids: u32) {
    let parent = |id: &u32| tree.dependency(*id).map(|(parent, _)| parent);
    let mut nodes = 1;
    for id in 0..ids {
        let Some((_, weight)) = tree.dependency(id) else {
            assert!(!open.contains_key(&id), "stream {id} is open and not in the tree");
            continue;
        };
        nodes += 1;
        assert!((1..=256).contains(&weight));
        let depth = std::iter::successors(Some(id), parent).take(ids as usize + 1);
        let path: Vec<u32> = depth.collect();
        assert_eq!(path.last(), Some(&0), "stream {id} is not below the root");
    }
    assert!(nodes <= tree.nodes_max());
    let is_ready = |id: &u32| open.get(id).is_some_and(|(_, ready)| *ready);
    match tree.first() {
        Some(id) => {
            assert!(is_ready(&id), "stream {id}");
            let mut above = std::iter::successors(Some(id), parent).skip(1);
            assert!(!above.any(|id| is_ready(&id)), "stream {id}");
        }
        None => assert!(open.values().all(|(_, ready)| !ready)),
    }
    assert_eq!(tree.is_empty(), tree.first().is_none());
}

/// One after the other is ready no more: each is first once.
fn all_have_a_turn(tree: &Tree, open: &Open, ids: u32) {
    let mut tree = tree.clone();
    let mut open = open.clone();
    while let Some(id) = tree.first() {
        let (place, ready) = open.get_mut(&id).expect("only open streams are ready");
        assert!(std::mem::take(ready));
        tree.sent(*place, 1000);
        tree.set_ready(*place, false);
        check(&tree, &open, ids);
    }
}
