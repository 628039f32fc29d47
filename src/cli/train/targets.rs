//! What `halite train ct` predicts: labels of 0 and 1, or the class of an image.

use halite::{
    Error, Result,
    data::{Dataset, Table, images::ImageTable},
};

use crate::cli::image_args::is_text;

/// The columns of a table that a model predicts.
pub(super) enum Targets {
    /// Labels that do not exclude each other.
    Labels(Vec<String>),
    /// The classes of one column, of which an image has one.
    Classes { column: String, names: Vec<String> },
}

/// Classes that the output names.
const NAMED: usize = 10;

impl Targets {
    /// Adds the labels of these columns to the images, or the classes of a column of text.
    ///
    /// # Errors
    /// If there are no columns; if one of several has text; if a cell is neither.
    pub(super) fn of_columns(
        images: ImageTable,
        table: &Table,
        columns: &[&String],
    ) -> Result<(ImageTable, Self)> {
        let mut texts = Vec::new();
        for &column in columns {
            if is_text(table, column)? {
                texts.push(format!("`{column}`"));
            }
        }
        let refused = |message: String| Err(Error::invalid("train ct", message));
        match (columns, &texts[..]) {
            ([], _) => refused(format!(
                "{} has no columns but those of --ids and --group",
                table.name()
            )),
            ([column], [_]) => Targets::of_class(images, table, column),
            (_, []) => {
                let names: Vec<&str> = columns.iter().map(|name| name.as_str()).collect();
                let images =
                    images
                        .with_labels(table, &names)
                        .map_err(|error| match names[..] {
                            [name] => error.with_note(&format!(
                                "`--class {name}` makes a class of each value of the column"
                            )),
                            _ => error,
                        })?;
                let names = names.into_iter().map(str::to_owned).collect();
                Ok((images, Targets::Labels(names)))
            }
            (_, texts) => refused(format!(
                "{}: columns of text among {} columns of labels: {}; --class COLUMN names the column of \
                 the class of an image, --labels COLUMNS those of labels of 0 and 1",
                table.name(),
                columns.len(),
                texts.join(", ")
            )),
        }
    }

    /// Adds the classes of a column to the images.
    ///
    /// # Errors
    /// Those of [`ImageTable::with_classes`].
    pub(super) fn of_class(
        images: ImageTable,
        table: &Table,
        column: &str,
    ) -> Result<(ImageTable, Self)> {
        let images = images.with_classes(table, column)?;
        let (column, names) = (column.to_owned(), images.class_names().to_vec());
        Ok((images, Targets::Classes { column, names }))
    }

    /// Names of the outputs of the model.
    pub(super) fn names(&self) -> &[String] {
        match self {
            Targets::Labels(names) | Targets::Classes { names, .. } => names,
        }
    }

    /// The number of images of each class, of the first ones by name.
    pub(super) fn described(&self, images: &ImageTable) -> String {
        let names = self.names();
        let mut counts = vec![0; names.len()];
        for class in (0..images.len()).filter_map(|index| images.class(index)) {
            counts[class as usize] += 1;
        }
        let each = names.iter().zip(&counts).take(NAMED);
        let each: Vec<String> = each
            .map(|(name, count)| format!("{name} {count}"))
            .collect();
        let column = match self {
            Targets::Classes { column, .. } => format!(" by `{column}`"),
            Targets::Labels(_) => String::new(),
        };
        let more = if names.len() > NAMED { ", .." } else { "" };
        format!("{} classes{column}: {}{more}", names.len(), each.join(", "))
    }
}
