//! Samples with predictions in the report of a run.

use std::fs;

use halite_core::HostArray;
use halite_data::{DatasetExt, InMemory};
use halite_nn::{Adam, Tensor};
use halite_train::{
    Report,
    loggers::{CsvLog, Shown},
};

use super::{error_of, trainer};
use crate::shared::plane::{Model, Plane, samples};

fn predict<'t>(model: &Model<Tensor<'t>>, x: Tensor<'t>) -> Tensor<'t> {
    model.out.forward(x)
}

#[test]
fn predictions_stand_in_the_report() {
    let dir = tempfile::tempdir().unwrap();
    let run = trainer().out(dir.path()).max_epochs(2).build().unwrap();
    let mut fitted = run
        .fit(Plane, Model::new(), Adam::new(0.1), samples(24), samples(8))
        .unwrap();
    let of_fit = Report::read(dir.path().join("report.json")).unwrap();
    assert!(of_fit.predictions.is_empty() && !of_fit.configuration.is_empty());

    let shown = samples(8).subset([0, 5, 2]).unwrap();
    run.show_predictions(&mut fitted.report, &fitted.model, predict, shown)
        .unwrap();
    let report = Report::read(dir.path().join("report.json")).unwrap();
    assert_eq!(report, fitted.report);
    let outputs = run
        .predict_with(&fitted.model, predict, samples(8))
        .unwrap();
    let outputs = outputs.as_slice::<f32>().unwrap();
    let number = |text: &Shown| match text {
        Shown::Text(text) => text.parse::<f32>().unwrap(),
        Shown::Picture(_) => panic!("a picture"),
    };
    assert_eq!(report.predictions.len(), 3);
    for (sample, index) in report.predictions.iter().zip([0, 5, 2]) {
        let (got, expected) = (number(&sample.prediction), outputs[index]);
        assert!(
            (got - expected).abs() <= 1e-3 * expected.abs(),
            "{got} {expected}"
        );
        let target = (2.0 * index as f32).sin() - 2.0 * (2.0 * index as f32 + 1.0).sin();
        let got = number(sample.target.as_ref().unwrap());
        assert!(
            (got - target).abs() <= 1e-3 * target.abs(),
            "{got} {target}"
        );
    }
    let page = fs::read_to_string(dir.path().join("report.html")).unwrap();
    let Shown::Text(input) = &report.predictions[1].input else {
        panic!("a picture")
    };
    for part in ["<h2>Predictions</h2>", &**input, "<svg", "batch_size"] {
        assert!(page.contains(part), "{part}: {page}");
    }
    // Numbers are near or far, not right or wrong.
    assert!(!page.contains("class=\"wrong\""), "{page}");
    assert!(
        !CsvLog::read(dir.path().join("metrics.csv"))
            .unwrap()
            .is_empty()
    );
}

#[test]
fn pictures_that_a_report_has_no_room_for_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    let photos = |count: usize, side: usize| {
        let pixels = vec![200u8; count * side * side];
        let pixels = HostArray::from_slice(&pixels, [count, side, side]).unwrap();
        InMemory::new([("photo", pixels)]).unwrap()
    };
    let classes = |count: usize| HostArray::from_slice(&vec![1i32; count], [count]).unwrap();
    let mut report = Report::default();
    // Each is 1.33 MB as base64.
    let error = error_of(report.set_predictions(&photos(7, 1000), &classes(7)));
    assert!(
        error.contains("7 samples to show take 9.34 MB")
            && error.contains("give a subset of at most 6"),
        "{error}"
    );
    let error = error_of(report.set_predictions(&photos(1, 2600), &classes(1)));
    assert!(error.ends_with("give smaller pictures"), "{error}");
    assert!(report.predictions.is_empty());
    report
        .set_predictions(&photos(6, 1000), &classes(6))
        .unwrap();
    let path = dir.path().join("report.json");
    report.write(&path).unwrap();
    assert_eq!(Report::read(&path).unwrap(), report);
}

#[test]
fn pictures_stand_in_the_page() {
    let image = HostArray::from_slice(&[0.5f32; 2 * 6 * 6], [2, 6, 6]).unwrap();
    let class = HostArray::from_slice(&[3u8, 4], [2]).unwrap();
    let data = InMemory::new([("image", image), ("class", class)]).unwrap();
    let mut report = Report::default();
    let found = HostArray::from_slice(&[3i32, 5], [2]).unwrap();
    report.set_predictions(&data, &found).unwrap();
    let page = report.to_html("run", &[]).unwrap();
    assert_eq!(page.matches("src=\"data:image/png;base64,iVBOR").count(), 2);
    // The second is wrong.
    assert_eq!(page.matches("<tr class=\"wrong\">").count(), 1);

    let three = HostArray::from_slice(&[1i32; 3], [3]).unwrap();
    let error = error_of(report.set_predictions(&data, &three));
    assert!(error.contains("2 samples, and outputs s32[3]"), "{error}");
    let many = samples(101);
    let error = error_of(report.set_predictions(&many, &three));
    assert!(
        error.contains("101 samples to show; give a subset of at most 100"),
        "{error}"
    );
}
