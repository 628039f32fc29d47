//! Ends of the lives of values.

use std::collections::{HashMap, HashSet};

use halite_stablehlo::{Region, ValueId};

use super::interpret::address;

/// Values that nothing uses after an operation, by the address of the operation; those that nothing
/// uses after a region, by the address of the region. A value ends in the region that defines it.
#[derive(Debug, Default)]
pub(super) struct LastUses(HashMap<usize, Vec<ValueId>>);

impl LastUses {
    /// Values that nothing uses after the operation or region at an address.
    pub(super) fn at(&self, address: usize) -> &[ValueId] {
        self.0.get(&address).map_or(&[], Vec::as_slice)
    }

    /// Adds those of a region and of the regions in it. Returns the values of enclosing regions that
    /// it uses.
    pub(super) fn add(&mut self, region: &Region) -> HashSet<ValueId> {
        let of_operations = region.operations.iter().flat_map(|op| &op.results);
        let own: HashSet<_> = region
            .arguments
            .iter()
            .chain(of_operations)
            .copied()
            .collect();
        let results: HashSet<_> = region.results.iter().copied().collect();
        let mut used_later = results.clone();
        for operation in region.operations.iter().rev() {
            let mut values = [&operation.results[..], &operation.operands].concat();
            for region in &operation.regions {
                values.extend(self.add(region));
            }
            values.retain(|&id| used_later.insert(id) && own.contains(&id));
            self.0.insert(address(operation), values);
        }
        let is_left = |id: &ValueId| results.contains(id) || !used_later.contains(id);
        let left = own.iter().copied().filter(is_left).collect();
        self.0.insert(address(region), left);
        used_later.difference(&own).copied().collect()
    }
}

#[cfg(test)]
mod tests {
    use halite_stablehlo::Module;

    use super::*;

    #[test]
    fn values_of_nested_regions_are_dropped() {
        let text = "func.func public @main(%x: tensor<f32>) -> tensor<f32> {
          %0 = stablehlo.while(%v = %x) : tensor<f32>
          cond {
            %no = stablehlo.constant dense<false> : tensor<i1>
            stablehlo.return %no : tensor<i1>
          } do {
            %1 = stablehlo.add %v, %x : tensor<f32>
            %2 = stablehlo.add %1, %1 : tensor<f32>
            stablehlo.return %2 : tensor<f32>
          }
          return %0 : tensor<f32>
        }";
        let module = Module::parse(text).unwrap();
        let main = &module.main().unwrap().body;
        let mut last_uses = LastUses::default();
        assert!(last_uses.add(main).is_empty());
        let body = &main.operations[0].regions[1];
        let [first, second] = &body.operations[..] else {
            panic!("the body has {} operations", body.operations.len());
        };
        assert_eq!(last_uses.0[&address(first)], body.arguments);
        assert_eq!(last_uses.0[&address(second)], first.results.to_vec());
        assert_eq!(last_uses.0[&address(body)], second.results.to_vec());
        assert_eq!(last_uses.0[&address(&main.operations[0])], main.arguments);
    }
}
