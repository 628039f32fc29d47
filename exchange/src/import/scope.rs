//! Values of a program while a graph is made of it.

use std::{collections::HashMap, rc::Rc};

use halite_core::Result;
use halite_ir::{BinaryOp, Graph, Op, Value};
use halite_stablehlo::{Dense, Function, OpKind, Operation, Type, ValueId};

/// A function of the program, with the operation that computes each value.
pub(super) struct Known<'m> {
    pub(super) function: &'m Function,
    pub(super) operations: HashMap<ValueId, &'m Operation>,
}

impl<'m> Known<'m> {
    pub(super) fn of(function: &'m Function) -> Self {
        let (mut operations, mut regions) = (HashMap::new(), vec![&function.body]);
        while let Some(region) = regions.pop() {
            for operation in &region.operations {
                operations.extend(operation.results.iter().map(|&id| (id, operation)));
                regions.extend(&operation.regions);
            }
        }
        Known {
            function,
            operations,
        }
    }

    /// The scalar constant that a value is, or that all its elements are.
    pub(super) fn scalar(&self, mut id: ValueId) -> Option<&'m Dense> {
        // A chain of broadcasts ends, since values are computed before they are used.
        loop {
            let operation = *self.operations.get(&id)?;
            match &operation.kind {
                OpKind::Constant(dense) if dense.is_splat() || dense.ty.elements() == 1 => {
                    return Some(dense);
                }
                OpKind::BroadcastInDim { .. } | OpKind::Reshape => id = operation.operands[0],
                _ => return None,
            }
        }
    }
}

/// A graph that is being made, with the values of a function that are known in it.
pub(super) struct Scope<'m> {
    pub(super) graph: Graph,
    pub(super) known: Rc<Known<'m>>,
    pub(super) values: HashMap<ValueId, Value>,
}

impl<'m> Scope<'m> {
    pub(super) fn new(known: Rc<Known<'m>>) -> Self {
        Scope {
            graph: Graph::new(),
            known,
            values: HashMap::new(),
        }
    }

    pub(super) fn ty(&self, id: ValueId) -> &'m Type {
        self.known.function.ty(id)
    }

    pub(super) fn value(&self, id: ValueId) -> Value {
        *(self.values.get(&id)).expect("a valid program computes values before it uses them")
    }

    pub(super) fn values(&self, ids: &[ValueId]) -> Vec<Value> {
        ids.iter().map(|&id| self.value(id)).collect()
    }

    pub(super) fn push(&mut self, op: Op, operands: &[Value]) -> Result<Vec<Value>> {
        Ok(self.graph.push(op, operands, None)?.to_vec())
    }

    pub(super) fn push_one(&mut self, op: Op, operands: &[Value]) -> Result<Value> {
        Ok(self.push(op, operands)?[0])
    }

    /// Repeats a scalar to the dimensions of `like`.
    pub(super) fn broadcast(&mut self, scalar: Value, like: Value) -> Result<Value> {
        let dims = self.graph.ty(like).dims().to_vec();
        let mapping = Vec::new();
        self.push_one(Op::Broadcast { dims, mapping }, &[scalar])
    }

    pub(super) fn binary(&mut self, op: BinaryOp, left: Value, right: Value) -> Result<Value> {
        self.push_one(Op::Binary(op), &[left, right])
    }
}
