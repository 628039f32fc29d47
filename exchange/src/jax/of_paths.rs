//! Trees that are made of paths.

use std::collections::BTreeMap;

use halite_core::{Error, Result};

use super::PyTree;

impl PyTree {
    /// The tree with these paths, and the index of the path of each leaf. Levels with the keys 0,
    /// 1, .. are lists, others dicts, ordered as JAX does.
    pub(crate) fn of_paths(paths: &[String]) -> Result<(PyTree, Vec<usize>)> {
        let mut root = Node::default();
        for (index, path) in paths.iter().enumerate() {
            let mut node = &mut root;
            for key in path.split('.').filter(|key| !key.is_empty()) {
                node = node.children.entry(key).or_default();
            }
            if node.leaf.replace(index).is_some() {
                let message = format!("two arrays have the path `{path}`");
                return Err(Error::invalid("export", message));
            }
        }
        let mut order = Vec::with_capacity(paths.len());
        let tree = root.tree(&mut order)?;
        Ok((tree, order))
    }
}

/// A tree that is made of paths.
#[derive(Default)]
struct Node<'a> {
    /// Index of the path that ends here.
    leaf: Option<usize>,
    children: BTreeMap<&'a str, Node<'a>>,
}

impl Node<'_> {
    fn tree(&self, order: &mut Vec<usize>) -> Result<PyTree> {
        if let Some(index) = self.leaf {
            if let Some(key) = self.children.keys().next() {
                let message = format!("the parent of `{key}` is both an array and a struct");
                return Err(Error::invalid("export", message));
            }
            order.push(index);
            return Ok(PyTree::Leaf);
        }
        let numbered: Option<Vec<&Node<'_>>> = (0..self.children.len())
            .map(|index| self.children.get(index.to_string().as_str()))
            .collect();
        if let Some(children) = numbered {
            let children = children.into_iter().map(|child| child.tree(order));
            return Ok(PyTree::List(children.collect::<Result<_>>()?));
        }
        let children =
            (self.children.iter()).map(|(key, child)| Ok(((*key).to_owned(), child.tree(order)?)));
        Ok(PyTree::Dict(children.collect::<Result<_>>()?))
    }
}
