//! Parameters from checkpoints, and training from given parameters.

use std::{
    collections::{BTreeMap, HashSet},
    panic::Location,
    path::Path,
    sync::Arc,
};

use halite_core::{
    Array, DType, Error, HostArray, Result, Sharding, Tree,
    tree::{Of, same_structure},
};
use halite_data::{Dataset, ValidationSet};
use halite_nn::{ArraySpec, Optimizer, Param};

use crate::{
    Fitted, Task, Trainer,
    checkpoint::{CheckpointInfo, CheckpointStore, Saved},
    fit::Start,
    programs::{ModelArrays, ModelParams},
    resume::Metadata,
};

impl Trainer {
    /// Loads the parameters of `net` from the run in `dir`: from its best checkpoint, or the newest
    /// if none is marked as best; or from the checkpoint or the file of weights that `dir` is. They
    /// are sharded by the trainer's strategy.
    ///
    /// ```no_run
    /// // no_run: needs an accelerator and a finished run
    /// # use halite_nn::{Linear, jit_like};
    /// # fn predict(trainer: halite_train::Trainer, client: halite_core::Client, x: halite_core::Array)
    /// # -> halite_core::Result<()> {
    /// let net = trainer.load(&Linear::new(784, 10), "runs/mnist")?;
    /// let predict = jit_like(&client, (&net, &x), |_cx, (net, x)| [net.forward(x).softmax(1)]);
    /// let [probabilities] = predict.run((&net, &x))?;
    /// println!("{probabilities}");
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// If there is no checkpoint, it cannot be read, or its parameters differ from those of `net`:
    /// one error lists all differences.
    pub fn load<M: Tree<Leaf = Param>>(
        &self,
        net: &M,
        dir: impl AsRef<Path>,
    ) -> Result<Of<M, Array>> {
        self.upload_model(net, Saved::of_run(dir)?.take_model(net)?)
    }

    /// As [`load`](Self::load), with the averages of the parameters
    /// ([`average`](crate::TrainerBuilder::average)).
    ///
    /// # Errors
    /// As [`load`](Self::load); if the run has no averages.
    pub fn load_average<M: Tree<Leaf = Param>>(
        &self,
        net: &M,
        dir: impl AsRef<Path>,
    ) -> Result<Of<M, Array>> {
        self.upload_model(net, Saved::of_run(dir)?.take_average(net)?)
    }

    /// As [`load`](Self::load), with the parameters that the run validated, by which its best
    /// checkpoint was chosen: the averages, if it has some.
    ///
    /// # Errors
    /// As [`load`](Self::load).
    pub fn load_validated<M: Tree<Leaf = Param>>(
        &self,
        net: &M,
        dir: impl AsRef<Path>,
    ) -> Result<Of<M, Array>> {
        self.upload_model(net, Saved::of_run(dir)?.take_validated(net)?)
    }

    fn upload_model<M: Tree<Leaf = Param>>(
        &self,
        net: &M,
        hosts: Of<M, HostArray>,
    ) -> Result<Of<M, Array>> {
        let hosts = hosts.into_leaves();
        let specs = self.model_specs(net)?;
        let upload = |(host, spec): (HostArray, &ArraySpec)| {
            Array::upload_as(&self.client, &Arc::new(host), &spec.sharding, spec.stored)
        };
        let arrays = hosts.into_iter().zip(specs.leaves()).map(upload);
        Ok(net.rebuild(arrays.collect::<Result<Vec<_>>>()?))
    }

    /// Types and shardings of the parameters of `net` in training.
    fn model_specs<M: Tree<Leaf = Param>>(&self, net: &M) -> Result<Of<M, ArraySpec>> {
        let partition = self.strategy().specs(self.mesh(), net)?;
        let spec = |(param, spec): (&Param, &halite_core::PartitionSpec)| {
            let sharding = Sharding::new(self.mesh(), spec.clone())?;
            let declared = param.ty.dtype();
            let stored = if param.trainable {
                self.precision().stored(declared)
            } else {
                declared
            };
            Ok(ArraySpec::new(param.ty.clone(), &sharding).stored_as(stored))
        };
        let specs = net.leaves().into_iter().zip(partition.leaves()).map(spec);
        Ok(net.rebuild(specs.collect::<Result<Vec<_>>>()?))
    }

    /// Trains like [`fit`](Self::fit), from the parameters `values` instead of initialized ones, as
    /// for fine-tuning. A resumed run continues from its checkpoint.
    ///
    /// # Errors
    /// If `values` do not have the structure and types of `model`; as [`fit`](Self::fit).
    #[track_caller]
    pub fn fit_from<K: Task, O: Optimizer>(
        &self,
        task: K,
        model: ModelParams<K>,
        values: ModelArrays<K>,
        optimizer: O,
        train: impl Dataset + 'static,
        validation: impl ValidationSet,
    ) -> Result<Fitted<K>> {
        let start = Start::from(model, values)?;
        let line = Location::caller();
        let fit = self.run(line, task, start, optimizer, train, validation)?;
        fit.fit()
    }
}

impl<K: Task> Start<K> {
    /// # Errors
    /// If `values` do not have the structure and types of `model`.
    pub(crate) fn from(model: ModelParams<K>, values: ModelArrays<K>) -> Result<Self> {
        same_structure(&model, &values).map_err(|error| {
            Error::invalid("fit", "the values do not fit the model").caused_by(error)
        })?;
        let types = model.named().into_iter().zip(values.leaves());
        let wrong: Vec<String> = types
            .filter(|((_, param), array)| param.ty != *array.ty())
            .map(|((path, param), array)| format!("`{path}` is {}, given {}", param.ty, array.ty()))
            .collect();
        match wrong[..] {
            [] => Ok(Start {
                model,
                values: Some(values),
            }),
            _ => Err(Error::invalid("fit", wrong.join("; "))),
        }
    }
}

impl CheckpointInfo {
    /// The options of the run that wrote it, by name: those that the trainer knows, and its
    /// [properties](crate::TrainerBuilder::property). Empty if a trainer did not write it.
    pub fn options(&self) -> Vec<(String, String)> {
        let metadata = Metadata::parse(self.path(), self.metadata());
        metadata.map_or_else(
            |_| Vec::new(),
            |metadata| metadata.identity.hyperparameters(),
        )
    }
}

impl Saved {
    /// The properties of the run, by name: [`TrainerBuilder::property`](crate::TrainerBuilder::property).
    /// A file of weights alone has them from the newest checkpoint beside it.
    ///
    /// # Errors
    /// If a trainer did not write the checkpoint.
    pub fn properties(&self) -> Result<BTreeMap<String, String>> {
        let path = self.path();
        let beside = match path.parent().filter(|_| path.is_file()) {
            Some(folder) => CheckpointStore::open_read_only(folder)?
                .list()?
                .into_iter()
                .next(),
            None => None,
        };
        let metadata = match beside {
            Some((newest, _)) => {
                let info = CheckpointInfo::read(&newest)?;
                Metadata::parse(&newest, info.metadata())?
            }
            None => Metadata::of(self)?,
        };
        Ok(metadata.identity.into_properties())
    }

    /// Takes the parameters of `net` out.
    ///
    /// # Errors
    /// If they differ from those of `net`: one error lists all differences.
    pub fn take_model<M: Tree<Leaf = Param>>(&mut self, net: &M) -> Result<Of<M, HostArray>> {
        let types = net.named().into_iter();
        let types = types.map(|(path, param)| (format!("model.{path}"), param.ty.clone()));
        let hosts = self.take_some(&types.collect::<Vec<_>>())?;
        Ok(net.rebuild(hosts))
    }

    /// Takes the parameters of `net` out that the run validated, by which its best checkpoint was
    /// chosen: the averages, if it has some.
    ///
    /// # Errors
    /// As [`take_model`](Self::take_model).
    pub fn take_validated<M: Tree<Leaf = Param>>(&mut self, net: &M) -> Result<Of<M, HostArray>> {
        let has_averages = self.arrays().any(|(name, _)| name.starts_with("average."));
        if has_averages {
            self.take_average(net)
        } else {
            self.take_model(net)
        }
    }

    /// Takes the averages of the leaves of `net` out, and the leaves that have none.
    ///
    /// # Errors
    /// As [`take_model`](Self::take_model); if the run has no averages.
    pub fn take_average<M: Tree<Leaf = Param>>(&mut self, net: &M) -> Result<Of<M, HostArray>> {
        let averages: HashSet<String> = self.arrays().map(|(name, _)| name.to_string()).collect();
        let types = net.named().into_iter().map(|(path, param)| {
            let average = format!("average.{path}");
            let wide = match param.ty.dtype() {
                DType::F64 => DType::F64,
                _ => DType::F32,
            };
            if param.trainable || averages.contains(&average) {
                (average, param.ty.with_dtype(wide))
            } else {
                (format!("model.{path}"), param.ty.clone())
            }
        });
        let hosts = self.take_some(&types.collect::<Vec<_>>())?;
        Ok(net.rebuild(hosts))
    }
}
