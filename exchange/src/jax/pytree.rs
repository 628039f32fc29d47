//! Trees of Python containers.

use std::collections::BTreeMap;

use halite_core::{Error, Result};

/// A tree of Python containers with arrays at its leaves: a `PyTreeDef` of JAX.
///
/// ```
/// use halite_exchange::PyTree;
///
/// let layer = PyTree::Dict(vec![("bias".into(), PyTree::Leaf), ("kernel".into(), PyTree::Leaf)]);
/// let arguments = PyTree::Tuple(vec![PyTree::List(vec![layer]), PyTree::Leaf]);
/// assert_eq!(arguments.paths(), ["0.0.bias", "0.0.kernel", "1"]);
/// ```
#[derive(Clone, Debug, PartialEq)]
pub enum PyTree {
    /// An array.
    Leaf,
    /// `None`, which has no leaves.
    None,
    /// A tuple.
    Tuple(Vec<PyTree>),
    /// A list.
    List(Vec<PyTree>),
    /// A dict with the children by key. JAX orders leaves by key.
    Dict(Vec<(String, PyTree)>),
    /// A type of the user that is registered with JAX, such as a named tuple.
    Custom {
        /// Name of the registration.
        name: String,
        /// Static part of the value, as its registration serializes it.
        data: Vec<u8>,
        /// The children, in order.
        children: Vec<PyTree>,
    },
}

impl PyTree {
    /// Paths of the leaves, in the order of their values: keys and indices, separated by dots.
    pub fn paths(&self) -> Vec<String> {
        let (mut paths, mut path) = (Vec::new(), Vec::new());
        self.visit(&mut path, &mut paths);
        paths
    }

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

    /// Number of leaves.
    pub fn leaves(&self) -> usize {
        match self {
            PyTree::Leaf => 1,
            PyTree::None => 0,
            PyTree::Tuple(children) | PyTree::List(children) | PyTree::Custom { children, .. } => {
                children.iter().map(PyTree::leaves).sum()
            }
            PyTree::Dict(children) => children.iter().map(|(_, child)| child.leaves()).sum(),
        }
    }

    fn visit(&self, path: &mut Vec<String>, paths: &mut Vec<String>) {
        let mut child = |key: String, child: &PyTree| {
            path.push(key);
            child.visit(path, paths);
            path.pop();
        };
        match self {
            PyTree::Leaf => paths.push(path.join(".")),
            PyTree::None => {}
            PyTree::Tuple(children) | PyTree::List(children) | PyTree::Custom { children, .. } => {
                (children.iter().enumerate())
                    .for_each(|(index, tree)| child(index.to_string(), tree));
            }
            PyTree::Dict(children) => {
                (children.iter()).for_each(|(key, tree)| child(key.clone(), tree));
            }
        }
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
