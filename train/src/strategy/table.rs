//! A strategy's decisions as a table.

use halite_core::{MeshShape, Result, tree::Tree};
use halite_nn::Param;
use indicatif::{BinaryBytes, HumanCount};

use super::Strategy;

impl Strategy {
    /// A table of the parameters of `model`: partition spec, shard on each device, and reason.
    ///
    /// # Errors
    /// As [`specs`](Self::specs).
    pub fn describe<M: Tree<Leaf = Param>>(&self, mesh: &MeshShape, model: &M) -> Result<String> {
        let mut rows =
            vec![["parameter", "type", "spec", "shard", "bytes", "why"].map(String::from)];
        let (mut whole, mut on_one) = (0, 0);
        for one in self.assign(mesh, &model.named())? {
            let shard = one.spec.shard_type(mesh, &one.ty)?;
            let bytes = shard.bytes() as u64;
            whole += one.ty.bytes() as u64;
            on_one += bytes;
            rows.push([
                one.path,
                one.ty.to_string(),
                one.spec.to_string(),
                shard.to_string(),
                HumanCount(bytes).to_string(),
                one.reason,
            ]);
        }
        let widths: [usize; 5] = std::array::from_fn(|column| {
            rows.iter()
                .map(|row| row[column].chars().count())
                .max()
                .expect("the header is a row")
        });
        let mut table = format!(
            "{self} on {mesh:#}: {} devices, batch sharded as {}\n",
            mesh.size(),
            self.batch_spec(mesh)
        );
        for [path, ty, spec, shard, bytes, why] in &rows {
            let [a, b, c, d, e] = widths;
            table +=
                format!("{path:a$}  {ty:b$}  {spec:c$}  {shard:d$}  {bytes:>e$}  {why}").trim_end();
            table.push('\n');
        }
        table += &format!(
            "{} of parameters, {} on each device\n",
            BinaryBytes(whole),
            BinaryBytes(on_one)
        );
        Ok(table)
    }
}
