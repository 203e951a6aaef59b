//! The paths of a broadcast: first from task to task, then from device to device within each, along binary trees. TensorFlow's
//! tasks use the same ones.

use super::group::Group;

/// A binary tree over some of the members.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Tree {
    /// The index of this tree in the broadcast, for keys.
    pub index: usize,
    /// The members, by their rank in the tree.
    pub members: Vec<usize>,
    /// The rank of the origin, which has the value first.
    source: usize,
    /// The rank of this member.
    pub rank: usize,
    /// Whether this member is the source of the whole broadcast.
    is_origin: bool,
}

impl Tree {
    /// Returns the trees that a member is part of, in the order of the value's path.
    pub fn all_of(group: &Group, origin: usize, own: usize) -> Vec<Tree> {
        let tasks = group.tasks();
        let is_origin = own == origin;
        let mut trees = Vec::new();
        let has_several = tasks.len() > 1;
        if has_several {
            // One device represents each task: for the origin's task it is the origin.
            let of_task = |task: &std::ops::Range<usize>| if task.contains(&origin) { origin } else { task.start };
            let members: Vec<usize> = tasks.iter().map(of_task).collect();
            let source = members.iter().position(|&member| member == origin).unwrap_or_default();
            if let Some(rank) = members.iter().position(|&member| member == own) {
                trees.push(Tree { index: 0, members, source, rank, is_origin });
            }
        }
        for (number, task) in tasks.iter().enumerate() {
            if task.contains(&own) {
                let source = if task.contains(&origin) { origin - task.start } else { 0 };
                let (index, rank) = (number + usize::from(has_several), own - task.start);
                trees.push(Tree { index, members: task.clone().collect(), source, rank, is_origin });
            }
        }
        trees
    }

    /// Returns the rank that sends the value to this one; none for the origin.
    pub fn receives_from(&self) -> Option<usize> {
        if self.rank == self.source {
            return None;
        }
        // An origin that is not the first member precedes all others, too.
        Some(if self.source == 0 { (self.rank - 1) / 2 } else { (self.rank / 2).checked_sub(1).unwrap_or(self.source) })
    }

    /// Returns the ranks that this one sends the value to.
    pub fn sends_to(&self) -> Vec<usize> {
        let count = self.members.len();
        let mut targets = Vec::new();
        if self.is_origin && self.source != 0 {
            if count > 1 {
                targets.push(0);
            }
            if count > 2 && self.source != 1 {
                targets.push(1);
            }
        }
        let next = if self.source == 0 { 2 * self.rank + 1 } else { 2 * (self.rank + 1) };
        targets.extend([next, next + 1].into_iter().filter(|&rank| rank < count && rank != self.source));
        targets
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::worker::collective::group::tests::group_of;
    use std::collections::BTreeSet;

    #[test]
    fn every_member_gets_the_value_once_from_one_that_sends_it() {
        for devices in [&[1][..], &[3], &[1, 1], &[1, 1, 1], &[2, 2], &[3, 1, 4], &[5, 2, 3, 1]] {
            let group = group_of(devices);
            let size = group.members.len();
            for origin in 0..size {
                let (mut sent, mut received) = (BTreeSet::new(), BTreeSet::new());
                for own in 0..size {
                    for tree in Tree::all_of(&group, origin, own) {
                        for target in tree.sends_to() {
                            let edge = (tree.index, tree.members[tree.rank], tree.members[target]);
                            assert!(sent.insert(edge), "{devices:?} {origin}: sent twice");
                        }
                        if let Some(from) = tree.receives_from() {
                            received.insert((tree.index, tree.members[from], tree.members[tree.rank]));
                        }
                    }
                }
                assert_eq!(sent, received, "{devices:?} from {origin}");
                let targets: BTreeSet<usize> = received.iter().map(|&(_, _, target)| target).collect();
                assert_eq!(targets.len(), size - 1, "{devices:?} from {origin}");
            }
        }
    }

    #[test]
    fn ranks_are_those_of_tensorflow() {
        let tree = |rank, source| {
            let members = (0..5).collect();
            let tree = Tree { index: 0, members, source, rank, is_origin: rank == source };
            (tree.receives_from(), tree.sends_to())
        };
        assert_eq!(tree(0, 0), (None, vec![1, 2]));
        assert_eq!(tree(1, 0), (Some(0), vec![3, 4]));
        assert_eq!(tree(2, 2), (None, vec![0, 1]));
        assert_eq!(tree(0, 2), (Some(2), vec![3]));
        assert_eq!(tree(1, 2), (Some(2), vec![4]));
    }
}
