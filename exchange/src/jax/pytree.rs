//! Trees of Python containers.

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
