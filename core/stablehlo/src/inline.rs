//! Calls as operations of the caller.

use std::collections::HashMap;

use halite_core::{Error, ErrorKind, Result};

use crate::{Function, Module, OpKind, Operation, Region, Type, ValueId};

impl Module {
    /// Returns `main` with the operations of the functions that it calls: none of its operations is
    /// a call or a composite.
    ///
    /// A short program may expand to any number of operations: at most `limit` are expanded, calls
    /// included.
    ///
    /// ```
    /// use halite_stablehlo::Module;
    ///
    /// let module = Module::read(b"
    ///     func.func private @twice(%x: tensor<f32>) -> tensor<f32> {
    ///         %y = stablehlo.add %x, %x : tensor<f32>
    ///         return %y : tensor<f32>
    ///     }
    ///     func.func @main(%x: tensor<f32>) -> tensor<f32> {
    ///         %y = call @twice(%x) : (tensor<f32>) -> tensor<f32>
    ///         %z = call @twice(%y) : (tensor<f32>) -> tensor<f32>
    ///         return %z : tensor<f32>
    ///     }")?;
    /// let main = module.inlined(100)?;
    /// assert_eq!(main.body.operations.len(), 2);
    /// assert!(module.inlined(3).is_err());
    /// # halite_core::Result::<()>::Ok(())
    /// ```
    ///
    /// # Errors
    /// [`ErrorKind::Unsupported`] if there are more operations than `limit`; if the module was not
    /// [verified](Self::verify) and calls a function that is missing, or itself.
    pub fn inlined(&self, limit: usize) -> Result<Function> {
        let main = self.main()?;
        let mut inliner = Inliner {
            module: self,
            types: Vec::new(),
            limit,
            expanded: 0,
        };
        let body = inliner.region(main, &main.body, &mut Values::new(), 0)?;
        Ok(Function {
            name: main.name.clone(),
            types: inliner.types,
            body,
            input_names: main.input_names.clone(),
            input_attributes: main.input_attributes.clone(),
            output_attributes: main.output_attributes.clone(),
        })
    }
}

/// Values of the result by the values of a function.
type Values = HashMap<ValueId, ValueId>;

struct Inliner<'m> {
    module: &'m Module,
    /// Types of the values of the result.
    types: Vec<Type>,
    limit: usize,
    /// Operations so far, calls included.
    expanded: usize,
}

impl Inliner<'_> {
    fn region(
        &mut self,
        function: &Function,
        region: &Region,
        values: &mut Values,
        depth: usize,
    ) -> Result<Region> {
        let arguments = self.define(function, &region.arguments, values);
        let mut operations = Vec::new();
        self.append(function, region, values, depth, &mut operations)?;
        Ok(Region {
            arguments,
            operations,
            results: find(values, &region.results)?,
        })
    }

    /// Appends the operations of a region to those of another one.
    fn append(
        &mut self,
        function: &Function,
        region: &Region,
        values: &mut Values,
        depth: usize,
        into: &mut Vec<Operation>,
    ) -> Result<()> {
        if depth > Module::MAX_NESTING {
            return Err(invalid("calls and regions are nested too deeply"));
        }
        for operation in &region.operations {
            self.expanded += 1;
            if self.expanded > self.limit {
                let message = format!("more than {} operations, calls expanded", self.limit);
                return Err(Error::new(ErrorKind::Unsupported, "program", message));
            }
            let operands = find(values, &operation.operands)?;
            if let OpKind::Call { function: name }
            | OpKind::Composite {
                decomposition: name,
                ..
            } = &operation.kind
            {
                let callee = self.module.function(name);
                let callee =
                    callee.ok_or_else(|| invalid(&format!("{operation}: no function `{name}`")))?;
                let arguments = callee.body.arguments.iter().copied();
                let mut inner: Values = arguments.zip(operands).collect();
                self.append(callee, &callee.body, &mut inner, depth + 1, into)?;
                let results = find(&inner, &callee.body.results)?;
                values.extend(operation.results.iter().copied().zip(results));
                continue;
            }
            let mut nested = |region| self.region(function, region, values, depth + 1);
            let regions = operation.regions.iter().map(&mut nested);
            let regions = regions.collect::<Result<_>>()?;
            into.push(Operation {
                kind: operation.kind.clone(),
                operands: operands.into(),
                results: self.define(function, &operation.results, values).into(),
                regions,
                attributes: operation.attributes.clone(),
                position: operation.position,
                location: operation.location.clone(),
            });
        }
        Ok(())
    }

    /// Adds values like these of a function to the result.
    fn define(
        &mut self,
        function: &Function,
        like: &[ValueId],
        values: &mut Values,
    ) -> Vec<ValueId> {
        let add = |&value: &ValueId| {
            let id = u32::try_from(self.types.len()).expect("fewer than 2^32 values");
            self.types.push(function.ty(value).clone());
            values.insert(value, ValueId(id));
            ValueId(id)
        };
        like.iter().map(add).collect()
    }
}

fn find(values: &Values, ids: &[ValueId]) -> Result<Vec<ValueId>> {
    let find = |id| values.get(id).copied();
    let found: Option<_> = ids.iter().map(find).collect();
    found.ok_or_else(|| invalid("an operation uses a value that is not defined before it"))
}

fn invalid(message: &str) -> Error {
    Error::invalid("program", message)
}
