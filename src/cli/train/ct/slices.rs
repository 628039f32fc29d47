//! The data of `halite train ct`: a table of images, or generated ones, in folds.

use std::{collections::BTreeSet, sync::Arc};

use halite::{
    Error, Result,
    data::{
        Dataset, DatasetExt, Permutation, Table, group_k_fold,
        images::{CT_LABELS, FakeCt, ImageTable},
    },
};

use super::{
    super::{classes::say_untrained, mixing::Sets, targets::Targets},
    Ct, Split,
};
use crate::cli::image_args::check_ids;

/// The data of a run.
pub(super) struct Slices {
    pub(super) targets: Targets,
    pub(super) sets: Sets,
}

/// Studies, and slices of each, of generated data, and the side of a slice in pixels.
const FAKE: [usize; 3] = [100, 20, 256];

/// Numbers of the class of an image, or of the labels that it has.
fn trained_by(images: &ImageTable, row: usize) -> Vec<usize> {
    let labels = images.labels(row).iter().enumerate();
    let labels = labels
        .filter(|(_, label)| **label > 0.0)
        .map(|(name, _)| name);
    let class = images.class(row).map(|class| class as usize);
    labels.chain(class).collect()
}

impl Ct {
    /// Finds the images of the table, or describes generated ones, and splits them.
    pub(super) fn slices(&self) -> Result<Slices> {
        if self.folds < 2 || self.fold >= self.folds {
            let message = format!(
                "--fold {} of --folds {}; folds count from 0, and there are at least 2",
                self.fold, self.folds
            );
            return Err(Error::invalid("train ct", message));
        }
        if self.fake_data {
            self.generated()
        } else {
            self.of_table()
        }
    }

    fn of_table(&self) -> Result<Slices> {
        let data = self.data();
        let csv = (self.images.csv.clone()).unwrap_or_else(|| data.join("train.csv"));
        let table = Table::read(&csv)?;
        let ids = &self.images.ids;
        check_ids("train ct", ids, &table)?;
        let other =
            |column: &&String| !ids.contains(column) && self.group.as_ref() != Some(*column);
        let ids: Vec<&str> = ids.iter().map(String::as_str).collect();
        let root = self.images.root(data, "train");
        let images = ImageTable::open(&root, &table, &ids, self.transforms())?;
        let (images, targets) = match (&self.class, &self.labels[..]) {
            (Some(column), _) => Targets::of_class(images, &table, column)?,
            (None, []) => {
                let columns: Vec<&String> = table.columns().iter().filter(other).collect();
                Targets::of_columns(images, &table, &columns)?
            }
            (None, given) => {
                Targets::of_columns(images, &table, &given.iter().collect::<Vec<_>>())?
            }
        };
        if let (Targets::Classes { .. }, true) = (&targets, self.run.is_coordinator()) {
            remark!("{}", targets.described(&images));
        }
        let group = self.group.as_deref().unwrap_or(ids[0]);
        let groups = table.categories(group)?;
        if matches!(self.split, Split::Study) {
            self.say_groups(group, &groups);
        }
        let rows = self.rows(&groups)?;
        if self.run.is_coordinator() {
            let trained = rows[0].iter().flat_map(|&row| trained_by(&images, row));
            say_untrained(targets.names(), trained);
        }
        self.sets(images.clone(), images.for_validation(), rows, targets)
    }

    /// Generated images with the labels of the real ones.
    fn generated(&self) -> Result<Slices> {
        let [studies, slices, side] = FAKE;
        let set = FakeCt {
            studies,
            slices,
            side,
            seed: self.run.options.seed,
        };
        let images = set.images(self.transforms())?;
        let studies: Vec<usize> = (0..images.len()).map(|index| images.study(index)).collect();
        let targets = Targets::Labels(CT_LABELS.map(str::to_owned).to_vec());
        let rows = self.rows(&studies)?;
        self.sets(images.clone(), images.for_validation(), rows, targets)
    }

    /// Rows to train on and to validate on, of images in these groups.
    fn rows<T: Ord>(&self, groups: &[T]) -> Result<[Vec<usize>; 2]> {
        let folds = match self.split {
            Split::Study => group_k_fold(groups, self.folds)?,
            Split::Image => {
                // Each image is a group: in random order, so that folds have images of all studies.
                let order = Permutation::new(groups.len(), 0, 0);
                (0..groups.len())
                    .map(|row| order.at(row) % self.folds)
                    .collect()
            }
        };
        let (validation, train) = (0..folds.len()).partition(|&row| folds[row] == self.fold);
        Ok([train, validation])
    }

    fn sets(
        &self,
        train: impl Dataset + 'static,
        validation: impl Dataset + 'static,
        rows: [Vec<usize>; 2],
        targets: Targets,
    ) -> Result<Slices> {
        let [train_rows, validation_rows] = rows;
        let sets = Sets {
            train: Arc::new(train.subset(train_rows)?),
            validation: Some(Arc::new(validation.subset(validation_rows)?)),
        };
        let classes = match &targets {
            Targets::Classes { names, .. } => Some(names.len()),
            Targets::Labels(_) => None,
        };
        let sets = self.mixing.apply(sets, classes)?;
        Ok(Slices { targets, sets })
    }

    /// Says what the folds keep together, once in a job.
    fn say_groups(&self, column: &str, groups: &[&str]) {
        if !self.run.is_coordinator() {
            return;
        }
        if self.group.is_none() && self.images.ids.len() == 1 {
            remark!(
                "each image is in a fold by itself, because --ids has one column; if several images \
                 are of one patient, --group COLUMN keeps them together"
            );
        } else {
            let count = groups.iter().collect::<BTreeSet<_>>().len();
            remark!(
                "{count} groups by `{column}`, each in one of {} folds",
                self.folds
            );
        }
    }
}
