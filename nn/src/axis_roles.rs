//! Roles of mesh axes, which a model names in place of the axes.

use std::{cell::RefCell, sync::Arc};

use halite_core::PartitionSpec;

use crate::{Tensor, Trace, shard_map};

/// Role of mesh axes in a model.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum AxisRole {
    /// Axes that split a batch by samples.
    Batch,
    /// Axes that split layers by features or heads: tensor parallelism.
    Model,
}

/// Names of the mesh axes in each role, outermost first (Flax calls this logical axis rules).
///
/// A model names roles, never axes. Whatever chooses the sharding binds them to the axes of a mesh:
/// a training strategy, or [`Jit::axis_roles`](crate::Jit::axis_roles).
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct AxisRoles {
    /// Axes with the role [`AxisRole::Batch`].
    pub batch: Vec<Arc<str>>,
    /// Axes with the role [`AxisRole::Model`].
    pub model: Vec<Arc<str>>,
}

impl AxisRoles {
    fn axes(&self, role: AxisRole) -> &[Arc<str>] {
        match role {
            AxisRole::Batch => &self.batch,
            AxisRole::Model => &self.model,
        }
    }
}

/// The axis roles of a trace, if they are bound.
#[derive(Default)]
struct Bound(RefCell<Option<AxisRoles>>);

impl Trace {
    /// Binds axis roles for the rest of the trace.
    pub fn bind_axis_roles(&self, roles: &AxisRoles) {
        self.state::<Bound>().0.replace(Some(roles.clone()));
    }
}

impl<'t> Tensor<'t> {
    /// Shards the leading dimensions over the axes in these roles; dimensions without a role, and
    /// those past the end, are whole:
    /// `x.role_constraint([Some(AxisRole::Batch), None, Some(AxisRole::Model)])`.
    ///
    /// Like [`sharding_constraint`](Self::sharding_constraint), it changes where results are
    /// computed, not their values. It does nothing if no roles are bound; axes that are manual in
    /// the surrounding [`shard_map`](Trace::shard_map) are left out.
    ///
    /// ```
    /// use halite_core::{DType, TensorType};
    /// use halite_nn::{AxisRole, AxisRoles, Trace};
    ///
    /// let cx = &Trace::new();
    /// cx.bind_axis_roles(&AxisRoles { batch: vec!["data".into()], model: vec![] });
    /// let x = cx.input(TensorType::new(DType::F32, [8, 4]), "x");
    /// let y = x.role_constraint([Some(AxisRole::Batch)]);
    /// let graph = cx.graph(&[x], &[y])?;
    /// assert_eq!(graph.nodes().len(), 1, "the constraint");
    /// # Ok::<(), halite_core::Error>(())
    /// ```
    #[track_caller]
    pub fn role_constraint(self, dims: impl IntoIterator<Item = Option<AxisRole>>) -> Tensor<'t> {
        let trace = self.trace();
        let Some(roles) = trace.state::<Bound>().0.borrow().clone() else {
            return self;
        };
        let bound: Vec<Vec<Arc<str>>> = dims
            .into_iter()
            .map(|role| role.map_or(Vec::new(), |role| roles.axes(role).to_vec()))
            .collect();
        let manual: Vec<Arc<str>> = shard_map::manual_axes(trace)
            .iter()
            .flat_map(|manual| &manual.axes)
            .map(|(axis, _)| axis.clone())
            .collect();
        let bound = PartitionSpec::new(bound);
        let spec = bound.without(&manual);
        // Nothing is left for the compiler to shard.
        if spec.is_replicated() && !bound.is_replicated() {
            return self;
        }
        self.sharding_constraint(spec)
    }
}
