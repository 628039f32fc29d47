//! Confusion matrices, and precision, recall and F1 from counts.

use halite_core::{Error, Result};

/// The confusion matrix of predicted and true classes, from 0 to `classes - 1`.
///
/// ```
/// use halite_train::metrics::confusion;
///
/// let matrix = confusion(&[0, 0, 2, 2, 1], &[0, 1, 2, 2, 1], 3)?;
/// assert_eq!(matrix.count(1, 0), 1.0);
/// assert_eq!(matrix.accuracy(), 0.8);
/// assert_eq!(matrix.class(1).recall(), 0.5);
/// # Ok::<(), halite_core::Error>(())
/// ```
///
/// # Errors
/// If the lengths differ, or a class is out of range, with its index.
pub fn confusion(
    predicted: &[usize],
    targets: &[usize],
    classes: usize,
) -> Result<ConfusionMatrix> {
    if predicted.len() != targets.len() {
        let message = format!(
            "{} predicted classes and {} targets; expected equally many",
            predicted.len(),
            targets.len()
        );
        return Err(Error::invalid("confusion", message));
    }
    let mut matrix = ConfusionMatrix::new(classes);
    for (index, (&predicted, &target)) in predicted.iter().zip(targets).enumerate() {
        let of_sample = |error: Error| error.with_note(&format!("in sample {index}"));
        matrix.add(predicted, target, 1.0).map_err(of_sample)?;
    }
    Ok(matrix)
}

/// Sums of the weights of samples by their true and their predicted class.
#[derive(Clone, Debug, PartialEq)]
pub struct ConfusionMatrix {
    classes: usize,
    /// `[true class, predicted class]`.
    counts: Vec<f64>,
}

impl ConfusionMatrix {
    /// A matrix of zeros.
    pub fn new(classes: usize) -> Self {
        ConfusionMatrix {
            classes,
            counts: vec![0.0; classes * classes],
        }
    }

    /// Adds a sample of this weight.
    ///
    /// # Errors
    /// If one of the classes is out of range.
    pub fn add(&mut self, predicted: usize, target: usize, weight: f64) -> Result<()> {
        for (what, class) in [("predicted class", predicted), ("target", target)] {
            if class >= self.classes {
                let classes = self.classes;
                let message = format!("the {what} is {class}; there are {classes} classes, from 0");
                return Err(Error::invalid("confusion", message));
            }
        }
        self.counts[target * self.classes + predicted] += weight;
        Ok(())
    }

    /// Number of classes.
    pub fn classes(&self) -> usize {
        self.classes
    }

    /// Sum of the weights of samples of the class `target` that are predicted as `predicted`.
    ///
    /// # Panics
    /// If one of the classes is out of range.
    pub fn count(&self, target: usize, predicted: usize) -> f64 {
        assert!(predicted < self.classes, "the predicted class is in range");
        self.counts[target * self.classes + predicted]
    }

    /// Counts of one class against all others.
    ///
    /// # Panics
    /// If the class is out of range.
    pub fn class(&self, class: usize) -> ClassCounts {
        let sum = |count: &dyn Fn(usize) -> f64| {
            let others = (0..self.classes).filter(|&other| other != class);
            others.map(count).sum::<f64>()
        };
        ClassCounts {
            true_positives: self.count(class, class),
            false_positives: sum(&|other| self.count(other, class)),
            false_negatives: sum(&|other| self.count(class, other)),
        }
    }

    /// Counts of each class against all others.
    pub fn by_class(&self) -> Vec<ClassCounts> {
        (0..self.classes).map(|class| self.class(class)).collect()
    }

    /// Fraction of samples whose class is predicted; NaN without samples.
    pub fn accuracy(&self) -> f64 {
        let right: f64 = (0..self.classes)
            .map(|class| self.count(class, class))
            .sum();
        right / self.counts.iter().sum::<f64>()
    }

    /// Sums, `[true class, predicted class]`.
    pub fn counts(&self) -> &[f64] {
        &self.counts
    }
}

/// Sums of the weights of samples, by whether they are of a class and whether they are predicted as
/// such.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct ClassCounts {
    /// Samples of the class that are predicted as such.
    pub true_positives: f64,
    /// Samples of other classes that are predicted as this one.
    pub false_positives: f64,
    /// Samples of the class that are predicted as another.
    pub false_negatives: f64,
}

impl ClassCounts {
    /// Fraction of what is predicted as this class that is of it. 0 if nothing is predicted as a
    /// class that has samples; NaN if it has none either.
    pub fn precision(self) -> f64 {
        self.fraction(self.true_positives + self.false_positives)
    }

    /// Fraction of the samples of this class that are predicted as such. 0 for a class without
    /// samples that is predicted; NaN if it is not predicted either.
    pub fn recall(self) -> f64 {
        self.fraction(self.true_positives + self.false_negatives)
    }

    /// Harmonic mean of precision and recall; NaN if the class has no samples and is not predicted.
    pub fn f1(self) -> f64 {
        2.0 * self.true_positives / (self.true_positives + self.union())
    }

    /// Intersection over union of prediction and target, the Jaccard index; NaN if both are empty.
    pub fn iou(self) -> f64 {
        self.true_positives / self.union()
    }

    fn union(self) -> f64 {
        self.true_positives + self.false_positives + self.false_negatives
    }

    fn fraction(self, of: f64) -> f64 {
        if self.union() > 0.0 && of == 0.0 {
            0.0
        } else {
            self.true_positives / of
        }
    }
}

/// Mean of a metric over classes, without those for which it is undefined; NaN if it is for all.
///
/// ```
/// use halite_train::metrics::{ClassCounts, confusion, macro_average};
///
/// let matrix = confusion(&[0, 0, 1, 1], &[0, 1, 1, 1], 3)?;
/// let recall = macro_average(matrix.by_class().into_iter().map(ClassCounts::recall));
/// assert!((recall - 5.0 / 6.0).abs() < 1e-15);
/// # Ok::<(), halite_core::Error>(())
/// ```
pub fn macro_average(values: impl IntoIterator<Item = f64>) -> f64 {
    let defined: Vec<f64> = values.into_iter().filter(|value| !value.is_nan()).collect();
    defined.iter().sum::<f64>() / defined.len() as f64
}

/// Counts over all classes or labels together: its precision, recall and F1 are the micro averages.
///
/// ```
/// use halite_train::metrics::{confusion, micro_average};
///
/// let matrix = confusion(&[0, 0, 1, 1], &[0, 1, 1, 1], 3)?;
/// assert_eq!(micro_average(&matrix.by_class()).f1(), matrix.accuracy());
/// # Ok::<(), halite_core::Error>(())
/// ```
pub fn micro_average(counts: &[ClassCounts]) -> ClassCounts {
    let sum = |count: fn(&ClassCounts) -> f64| counts.iter().map(count).sum();
    ClassCounts {
        true_positives: sum(|counts| counts.true_positives),
        false_positives: sum(|counts| counts.false_positives),
        false_negatives: sum(|counts| counts.false_negatives),
    }
}
