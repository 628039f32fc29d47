//! Types that are a leaf and a tree of that one leaf at the same time.

/// Implements `Tree` for types that are their own single leaf, such as arrays and tensors. Their
/// path adds no segment. Not a public interface.
#[doc(hidden)]
#[macro_export]
macro_rules! impl_single_leaf {
    ($ty:ty $(, $lifetime:lifetime)?) => {
        impl$(<$lifetime>)? $crate::tree::Tree for $ty {
            type Leaf = Self;
            type Family = $crate::tree::Leaf<()>;

            fn leaf_refs(&self) -> $crate::tree::Leaf<&Self> {
                $crate::tree::Leaf(self)
            }

            fn leaf_refs_mut(&mut self) -> $crate::tree::Leaf<&mut Self> {
                $crate::tree::Leaf(self)
            }

            fn try_map_at<L>(
                self,
                at: &mut $crate::tree::Path,
                f: &mut dyn FnMut(&$crate::tree::Path, Self) -> Option<L>,
            ) -> Option<$crate::tree::Leaf<L>> {
                Some($crate::tree::Leaf(f(at, self)?))
            }

            fn from_tree(tree: $crate::tree::Leaf<Self>) -> Self {
                tree.0
            }

            fn visit<'a>(
                &'a self,
                at: &mut $crate::tree::Path,
                f: &mut dyn FnMut(&$crate::tree::Path, &'a Self),
            ) {
                f(at, self);
            }
        }
    };
}

impl_single_leaf!(crate::Array);
impl_single_leaf!(crate::HostArray);
impl_single_leaf!(crate::TensorType);
