//! The tree of dependencies among streams (RFC 7540 section 5.3): whose bytes go next.
//!
//! A stream goes before those that depend on it; those that depend on the same one share what it
//! leaves in proportion to their weights. RFC 9113 section 5.3 deprecates all of this: the tree is
//! for clients that use it and nothing newer.
//!
//! Sharing is start-time fair queuing in each group of siblings: a node has a virtual time, which
//! its bytes advance, the more slowly the greater its weight is; the node whose next frame would
//! end first is next.
//!
//! Costs: there are [`Tree::nodes_max`] nodes at most, in one vector. Whatever a frame asks for,
//! and the choice of the next stream, takes time linear in that number, and nothing recurses.

use super::read::Dependency;

/// Nodes of streams that are closed, or not opened yet.
const DETACHED_MAX: usize = 64;

/// Nodes that stay while no streams are open.
const KEPT_MAX: usize = 16;

/// Open streams that the tree holds at most; a client with more of them has no tree.
const OPEN_MAX: usize = 1000;

/// The weight of a stream about which nothing is said (RFC 7540 section 5.3.5).
const WEIGHT: u16 = 16;

/// The place of the root, stream 0.
const ROOT: usize = 0;

/// No node.
const NONE: u32 = u32::MAX;

/// Bytes that the next frame of a node is taken to have, before it is known.
const QUANTUM: u64 = 8192;

/// Virtual time that a byte takes with weight 1; all weights up to 256 leave something.
const BYTE: u64 = 256;

#[derive(Clone, Debug)]
struct Node {
    /// The stream.
    id: u32,
    /// The connection's name for the stream while it is open, [`NONE`] otherwise.
    slot: u32,
    /// 1 to 256.
    weight: u16,
    /// The stream has something to send, and may.
    ready: bool,
    parent: u32,
    first_child: u32,
    next: u32,
    previous: u32,
    /// Streams that are ready in this subtree.
    ready_below: u32,
    /// Its virtual time among its siblings.
    time: u64,
    /// The virtual time of its children: that of the one that sent last.
    children_time: u64,
    /// When it, or one that depends on it, was last named, by [`Tree::clock`].
    used: u64,
}

/// The dependencies of a connection's streams.
#[derive(Clone, Debug)]
pub struct Tree {
    nodes: Vec<Node>,
    free: Vec<u32>,
    open_max: usize,
    open: usize,
    /// Nodes without an open stream, the root aside.
    detached: usize,
    clock: u64,
}

/// The place of an open stream in its tree.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Place(u32);

impl Tree {
    /// An empty tree for a connection of at most `streams` open ones.
    pub fn new(streams: usize) -> Tree {
        let mut tree = Tree {
            nodes: Vec::new(),
            free: Vec::new(),
            open_max: streams.min(OPEN_MAX),
            open: 0,
            detached: 0,
            clock: 0,
        };
        tree.nodes.push(tree.blank(0));
        tree
    }

    /// The nodes that it has at most.
    pub fn nodes_max(&self) -> usize {
        1 + self.open_max + DETACHED_MAX
    }

    /// A PRIORITY frame: `id` takes the place that `dependency` names, with all that depends on it.
    pub fn prioritize(&mut self, id: u32, dependency: Dependency) {
        if id == 0 || dependency.on == id {
            return;
        }
        let node = match self.find(id) {
            Some(node) => node,
            None => {
                let kept = self.find(dependency.on);
                self.make_room(kept);
                self.detached += 1;
                self.add(id)
            }
        };
        self.depend(node, dependency);
    }

    /// A stream is opened. `slot` is what [`Tree::first`] names it by. Without a dependency in its
    /// HEADERS it stands where a PRIORITY frame has put it before, or below the root. `None`: there
    /// are too many.
    pub fn open(&mut self, id: u32, slot: u32, dependency: Option<Dependency>) -> Option<Place> {
        if self.open == self.open_max || slot == NONE {
            return None;
        }
        let node = match self.find(id) {
            Some(node) if node == ROOT || self.nodes[node].slot != NONE => return None,
            Some(node) => {
                self.detached -= 1;
                node
            }
            None => self.add(id),
        };
        self.open += 1;
        self.nodes[node].slot = slot;
        if let Some(dependency) = dependency {
            self.depend(node, dependency);
        }
        Some(Place(node as u32))
    }

    /// A stream is over. Others may still depend on it, so its node stays for a while.
    pub fn close(&mut self, place: Place) {
        let Some(node) = self.opened(place) else { return };
        self.set_ready(place, false);
        self.make_room(None);
        self.touch(node);
        self.nodes[node].slot = NONE;
        self.open -= 1;
        self.detached += 1;
    }

    /// Whether a stream has something to send and may send it.
    pub fn set_ready(&mut self, place: Place, ready: bool) {
        let Some(node) = self.opened(place) else { return };
        if std::mem::replace(&mut self.nodes[node].ready, ready) == ready {
            return;
        }
        if ready { self.count(node, 1) } else { self.discount(node, 1) }
    }

    /// Whether no stream is ready.
    pub fn is_empty(&self) -> bool {
        self.nodes[ROOT].ready_below == 0
    }

    /// The slot of the stream that is next.
    pub fn first(&self) -> Option<u32> {
        let mut at = ROOT;
        loop {
            let node = &self.nodes[at];
            if node.ready {
                return Some(node.slot);
            }
            let end = |i: usize| {
                let node = &self.nodes[i];
                (node.time + QUANTUM * BYTE / u64::from(node.weight), node.id)
            };
            let waiting = self.children(at).filter(|i| self.nodes[*i].ready_below > 0);
            at = waiting.min_by_key(|i| end(*i))?;
        }
    }

    /// A stream has sent `n` bytes.
    pub fn sent(&mut self, place: Place, n: usize) {
        let Some(mut at) = self.opened(place) else { return };
        while at != ROOT {
            let node = &mut self.nodes[at];
            let (start, parent) = (node.time, node.parent as usize);
            node.time += n as u64 * BYTE / u64::from(node.weight);
            let time = &mut self.nodes[parent].children_time;
            *time = start.max(*time);
            at = parent;
        }
    }

    /// The stream that another depends on, and its weight.
    pub fn dependency(&self, id: u32) -> Option<(u32, u16)> {
        let node = &self.nodes[self.find(id).filter(|node| *node != ROOT)?];
        Some((self.nodes[node.parent as usize].id, node.weight))
    }

    /// Gives back memory while no streams are open. Nodes that were named last stay: clients make
    /// groups of streams that they never open.
    pub fn shrink(&mut self) {
        if self.open > 0 || self.nodes.len() <= 1 + KEPT_MAX {
            return;
        }
        while self.detached > KEPT_MAX {
            self.evict(None);
        }
        let mut small = Tree::new(self.open_max);
        small.nodes.reserve_exact(self.detached);
        let kept = || self.nodes.iter().filter(|node| node.id != 0);
        for node in kept() {
            let added = small.add(node.id);
            small.nodes[added].weight = node.weight;
            small.nodes[added].used = node.used;
        }
        for node in kept() {
            let parent = self.nodes[node.parent as usize].id;
            if let (Some(node), Some(parent)) = (small.find(node.id), small.find(parent)) {
                small.detach(node);
                small.attach(node, parent);
            }
        }
        small.detached = self.detached;
        small.clock = self.clock;
        *self = small;
    }

    fn opened(&self, place: Place) -> Option<usize> {
        let i = place.0 as usize;
        self.nodes.get(i).is_some_and(|node| node.slot != NONE).then_some(i)
    }

    fn find(&self, id: u32) -> Option<usize> {
        // Nodes that are free have the number of the root, which is found first.
        self.nodes.iter().position(|node| node.id == id)
    }

    fn children(&self, of: usize) -> impl Iterator<Item = usize> {
        let node = |i: u32| (i != NONE).then_some(i as usize);
        let first = node(self.nodes[of].first_child);
        std::iter::successors(first, move |i| node(self.nodes[*i].next))
    }

    fn blank(&self, id: u32) -> Node {
        Node {
            id,
            slot: NONE,
            weight: WEIGHT,
            ready: false,
            parent: NONE,
            first_child: NONE,
            next: NONE,
            previous: NONE,
            ready_below: 0,
            time: 0,
            children_time: 0,
            used: self.clock,
        }
    }

    /// Adds a node below the root.
    fn add(&mut self, id: u32) -> usize {
        let blank = self.blank(id);
        let node = match self.free.pop() {
            Some(i) => {
                self.nodes[i as usize] = blank;
                i as usize
            }
            None => {
                self.nodes.push(blank);
                self.nodes.len() - 1
            }
        };
        self.attach(node, ROOT);
        node
    }

    /// Gives a node its place (RFC 7540 sections 5.3.1 and 5.3.3).
    fn depend(&mut self, node: usize, dependency: Dependency) {
        if dependency.on == self.nodes[node].id {
            return;
        }
        let Some(parent) = self.find(dependency.on) else {
            // On a stream that the tree does not know: the default priority.
            self.nodes[node].weight = WEIGHT;
            self.detach(node);
            self.attach(node, ROOT);
            return self.touch(node);
        };
        if self.is_below(parent, node) {
            let above = self.nodes[node].parent as usize;
            self.detach(parent);
            self.attach(parent, above);
        }
        self.detach(node);
        self.nodes[node].weight = dependency.weight.clamp(1, 256);
        if dependency.exclusive {
            let ready = self.move_children(parent, node);
            self.nodes[node].ready_below += ready;
            self.discount(parent, ready);
        }
        self.attach(node, parent);
        self.touch(node);
    }

    /// Notes that a node was named, and with it those that it depends on.
    fn touch(&mut self, node: usize) {
        self.clock += 1;
        let mut at = node;
        while at != ROOT {
            self.nodes[at].used = self.clock;
            at = self.nodes[at].parent as usize;
        }
    }

    /// Whether a node depends on another, directly or through others.
    fn is_below(&self, node: usize, other: usize) -> bool {
        let mut at = node;
        while at != ROOT {
            at = self.nodes[at].parent as usize;
            if at == other {
                return true;
            }
        }
        false
    }

    /// Makes a node, with its subtree, the child of another.
    fn attach(&mut self, node: usize, parent: usize) {
        let second = std::mem::replace(&mut self.nodes[parent].first_child, node as u32);
        if let Some(second) = self.nodes.get_mut(second as usize) {
            second.previous = node as u32;
        }
        // Neither ahead of its new siblings nor behind them.
        let time = self.nodes[parent].children_time;
        let attached = &mut self.nodes[node];
        attached.parent = parent as u32;
        attached.previous = NONE;
        attached.next = second;
        attached.time = time;
        let ready = attached.ready_below;
        self.count(parent, ready);
    }

    /// Takes a node, with its subtree, from its parent.
    fn detach(&mut self, node: usize) {
        let Node { parent, previous, next, ready_below, .. } = self.nodes[node];
        match self.nodes.get_mut(previous as usize) {
            Some(previous) => previous.next = next,
            None => self.nodes[parent as usize].first_child = next,
        }
        if let Some(next) = self.nodes.get_mut(next as usize) {
            next.previous = previous;
        }
        self.discount(parent as usize, ready_below);
    }

    /// Gives all children of a node to another, and returns the number of ready streams in their
    /// subtrees, which neither node's counts know of yet.
    fn move_children(&mut self, from: usize, to: usize) -> u32 {
        let time = self.nodes[to].children_time;
        let (mut at, mut last, mut ready) = (self.nodes[from].first_child, NONE, 0);
        while let Some(child) = self.nodes.get_mut(at as usize) {
            child.parent = to as u32;
            child.time = time;
            ready += child.ready_below;
            last = at;
            at = child.next;
        }
        if last != NONE {
            let moved = std::mem::replace(&mut self.nodes[from].first_child, NONE);
            let others = std::mem::replace(&mut self.nodes[to].first_child, moved);
            self.nodes[last as usize].next = others;
            if let Some(other) = self.nodes.get_mut(others as usize) {
                other.previous = last;
            }
        }
        ready
    }

    /// Counts streams that became ready in the subtree of a node.
    fn count(&mut self, node: usize, n: u32) {
        if n == 0 {
            return;
        }
        let mut at = node;
        loop {
            self.nodes[at].ready_below += n;
            if at == ROOT {
                return;
            }
            let first = self.nodes[at].ready_below == n;
            let parent = self.nodes[at].parent as usize;
            if first {
                // Time that it spent without need is not saved up.
                let now = self.nodes[parent].children_time;
                let time = &mut self.nodes[at].time;
                *time = now.max(*time);
            }
            at = parent;
        }
    }

    /// Counts streams that are not ready any more, or not in the subtree of a node.
    fn discount(&mut self, node: usize, n: u32) {
        if n == 0 {
            return;
        }
        let mut at = node;
        loop {
            self.nodes[at].ready_below -= n;
            if at == ROOT {
                return;
            }
            at = self.nodes[at].parent as usize;
        }
    }

    /// Makes room for one more node without an open stream.
    fn make_room(&mut self, kept: Option<usize>) {
        if self.detached >= DETACHED_MAX {
            self.evict(kept);
        }
    }

    /// Removes the node that was not named for the longest time, other than `kept`.
    fn evict(&mut self, kept: Option<usize>) {
        let nodes = self.nodes.iter().enumerate().skip(1);
        let goes = nodes.filter(|(i, node)| node.id != 0 && node.slot == NONE && Some(*i) != kept);
        let Some((i, _)) = goes.min_by_key(|(_, node)| (node.used, node.first_child != NONE))
        else {
            return;
        };
        self.remove(i);
    }

    /// Removes a node: those that depended on it share its weight among its siblings (RFC 7540
    /// section 5.3.4).
    fn remove(&mut self, node: usize) {
        let Node { parent, weight, .. } = self.nodes[node];
        let sum: u64 = self.children(node).map(|i| u64::from(self.nodes[i].weight)).sum();
        let mut child = self.nodes[node].first_child;
        while let Some(node) = self.nodes.get_mut(child as usize) {
            let share = u64::from(weight) * u64::from(node.weight) / sum;
            node.weight = share.max(1) as u16;
            child = node.next;
        }
        self.detach(node);
        let ready = self.move_children(node, parent as usize);
        self.count(parent as usize, ready);
        self.nodes[node].id = 0;
        self.free.push(node as u32);
        self.detached -= 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn on(stream: u32, weight: u16) -> Dependency {
        Dependency { on: stream, exclusive: false, weight }
    }

    fn exclusively_on(stream: u32, weight: u16) -> Dependency {
        Dependency { on: stream, exclusive: true, weight }
    }

    /// A tree of open streams with these dependencies; slots are the streams' numbers.
    fn tree(streams: &[(u32, Dependency)]) -> Tree {
        let mut tree = Tree::new(100);
        for (id, dependency) in streams {
            tree.open(*id, *id, Some(*dependency)).unwrap();
        }
        tree
    }

    fn place(tree: &Tree, id: u32) -> Place {
        Place(tree.find(id).unwrap() as u32)
    }

    fn ready(tree: &mut Tree, ids: &[u32]) {
        for id in ids {
            tree.set_ready(place(tree, *id), true);
        }
    }

    /// The streams that send, each a frame of `n` bytes.
    fn sends(tree: &mut Tree, frames: usize, n: usize) -> Vec<u32> {
        let mut order = Vec::new();
        for _ in 0..frames {
            let Some(id) = tree.first() else { break };
            tree.sent(place(tree, id), n);
            order.push(id);
        }
        order
    }

    fn parents(tree: &Tree, ids: &[u32]) -> Vec<u32> {
        ids.iter().map(|id| tree.dependency(*id).unwrap().0).collect()
    }

    #[test]
    fn a_stream_goes_before_those_that_depend_on_it() {
        let mut tree = tree(&[(1, on(0, 16)), (3, on(1, 16)), (5, on(3, 16))]);
        ready(&mut tree, &[5, 3, 1]);
        assert_eq!(sends(&mut tree, 3, 100), [1, 1, 1]);
        tree.set_ready(place(&tree, 1), false);
        assert_eq!(tree.first(), Some(3));
        tree.close(place(&tree, 3));
        assert_eq!(tree.first(), Some(5));
        tree.close(place(&tree, 5));
        assert_eq!(tree.first(), None);
        assert!(tree.is_empty());
    }

    #[test]
    fn siblings_share_by_weight() {
        let mut tree = tree(&[(1, on(0, 256)), (3, on(0, 64)), (5, on(0, 64))]);
        ready(&mut tree, &[1, 3, 5]);
        let order = sends(&mut tree, 600, 8192);
        let count = |id| order.iter().filter(|other| **other == id).count();
        assert_eq!((count(1), count(3), count(5)), (400, 100, 100));
        assert_eq!(order[..6], [1, 1, 1, 1, 3, 5]);
    }

    #[test]
    fn a_group_shares_what_its_parent_gets() {
        let groups = [(1, on(0, 200)), (3, on(0, 100)), (5, on(1, 1)), (7, on(1, 3))];
        let mut tree = tree(&groups);
        ready(&mut tree, &[3, 5, 7]);
        let order = sends(&mut tree, 1200, 8192);
        let count = |id| order.iter().filter(|other| **other == id).count();
        assert_eq!((count(5), count(7), count(3)), (200, 600, 400));
    }

    #[test]
    fn a_pause_earns_nothing() {
        let mut tree = tree(&[(1, on(0, 16)), (3, on(0, 16))]);
        ready(&mut tree, &[1]);
        sends(&mut tree, 1000, 1000);
        ready(&mut tree, &[3]);
        let order = sends(&mut tree, 10, 1000);
        assert_eq!(order.iter().filter(|id| **id == 3).count(), 5, "{order:?}");
    }

    #[test]
    fn an_exclusive_dependency_takes_the_others_below_it() {
        // RFC 7540 section 5.3.1, figure 4.
        let mut tree = tree(&[(1, on(0, 16)), (3, on(1, 16)), (5, on(1, 16))]);
        tree.open(7, 7, Some(exclusively_on(1, 9))).unwrap();
        assert_eq!(parents(&tree, &[3, 5, 7]), [7, 7, 1]);
        assert_eq!(tree.dependency(7), Some((1, 9)));
        ready(&mut tree, &[3, 5, 7]);
        assert_eq!(tree.first(), Some(7));
    }

    #[test]
    fn a_subtree_moves_below_its_own_descendant() {
        // RFC 7540 section 5.3.3, figure 5: A=1, B=3, C=5, D=7, E=9, F=11.
        let start = [
            (1, on(0, 16)),
            (3, on(1, 16)),
            (5, on(1, 16)),
            (7, on(5, 16)),
            (9, on(5, 16)),
            (11, on(7, 16)),
        ];
        let ids = [1, 3, 5, 7, 9, 11];
        let mut plain = tree(&start);
        ready(&mut plain, &ids);
        plain.prioritize(1, on(7, 16));
        assert_eq!(parents(&plain, &ids), [7, 1, 1, 0, 5, 7]);
        assert_eq!(plain.first(), Some(7));
        let mut exclusive = tree(&start);
        exclusive.prioritize(1, exclusively_on(7, 16));
        assert_eq!(parents(&exclusive, &ids), [7, 1, 1, 0, 5, 1]);
    }

    #[test]
    fn a_place_may_be_given_before_the_stream_is_opened() {
        let mut tree = Tree::new(10);
        tree.prioritize(3, on(0, 100));
        tree.prioritize(1, on(3, 50));
        let one = tree.open(1, 1, None).unwrap();
        let three = tree.open(3, 3, None).unwrap();
        assert_eq!(tree.dependency(1), Some((3, 50)));
        tree.set_ready(one, true);
        assert_eq!(tree.first(), Some(1), "its parent has nothing to send");
        tree.set_ready(three, true);
        assert_eq!(tree.first(), Some(3));
        assert_eq!(tree.open(3, 4, None), None, "it is open already");
    }

    #[test]
    fn a_dependency_on_an_unknown_stream_is_none() {
        let mut tree = tree(&[(1, on(0, 16))]);
        tree.open(3, 3, Some(exclusively_on(99, 200))).unwrap();
        assert_eq!(tree.dependency(3), Some((0, 16)));
        assert_eq!(tree.dependency(1), Some((0, 16)));
        tree.prioritize(3, on(3, 5));
        assert_eq!(tree.dependency(3), Some((0, 16)), "nor does it depend on itself");
        tree.open(5, 5, Some(on(5, 5))).unwrap();
        assert_eq!(tree.dependency(5), Some((0, 16)));
        tree.prioritize(0, on(3, 5));
        assert_eq!(tree.dependency(0), None);
    }

    #[test]
    fn closed_streams_stay_for_a_while() {
        let mut tree = tree(&[(1, on(0, 100)), (3, on(1, 1)), (5, on(1, 3))]);
        tree.close(place(&tree, 1));
        assert_eq!(parents(&tree, &[3, 5]), [1, 1]);
        for id in 0..DETACHED_MAX as u32 {
            tree.prioritize(101 + id, on(0, 16));
        }
        assert_eq!(tree.dependency(1), None);
        assert_eq!((tree.dependency(3), tree.dependency(5)), (Some((0, 25)), Some((0, 75))));
    }

    #[test]
    fn groups_in_use_are_not_forgotten() {
        let mut tree = Tree::new(10);
        tree.prioritize(3, on(0, 200));
        for id in (5..1005).step_by(2) {
            let place = tree.open(id, id, Some(on(3, 16))).unwrap();
            tree.close(place);
        }
        assert_eq!(tree.dependency(3), Some((0, 200)));
    }

    #[test]
    fn an_idle_connection_keeps_its_groups() {
        let mut tree = Tree::new(100);
        tree.prioritize(3, on(0, 200));
        tree.prioritize(5, on(3, 100));
        let places: Vec<Place> =
            (11..111).filter_map(|id| tree.open(id, id, Some(on(5, 7)))).collect();
        places.iter().for_each(|place| tree.close(*place));
        tree.prioritize(3, on(0, 201));
        tree.shrink();
        assert_eq!((tree.nodes.len(), tree.nodes.capacity()), (1 + KEPT_MAX, 1 + KEPT_MAX));
        assert_eq!((tree.dependency(3), tree.dependency(5)), (Some((0, 201)), Some((3, 100))));
        assert_eq!(tree.dependency(110), Some((5, 7)));
        let place = tree.open(111, 1, Some(on(5, 7))).unwrap();
        tree.set_ready(place, true);
        tree.shrink();
        assert_eq!(tree.first(), Some(1));
    }

    #[test]
    fn its_size_is_bounded() {
        let mut tree = Tree::new(10);
        for id in 1..5000 {
            tree.prioritize(id, exclusively_on(id - 1, 16));
        }
        for id in 10_000..10_010 {
            assert!(tree.open(id, id, Some(exclusively_on(0, 1))).is_some());
        }
        assert_eq!(tree.open(10_010, 1, None), None);
        assert_eq!(tree.nodes.len(), tree.nodes_max());
    }
}
