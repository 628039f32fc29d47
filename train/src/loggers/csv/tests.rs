//! Tests of the table of metrics.

use super::*;

fn row(step: u64, split: Split, metrics: &[(&str, f64)]) -> Row {
    let metrics = metrics
        .iter()
        .map(|&(name, value)| (name.to_string(), value))
        .collect();
    Row {
        step,
        epoch: step / 100,
        seconds: step as f64 / 8.0,
        split,
        metrics,
    }
}

fn text(path: &Path) -> String {
    std::fs::read_to_string(path).unwrap()
}

#[test]
fn rows_are_written_at_once() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("metrics.csv");
    let mut log = CsvLog::create(&path).unwrap();
    log.write(&row(50, Split::Train, &[("loss", 0.5), ("accuracy", 0.25)]))
        .unwrap();
    log.write(&row(
        100,
        Split::Train,
        &[("accuracy", 0.5), ("loss", 0.1 + 0.2)],
    ))
    .unwrap();
    assert_eq!(
        text(&path),
        "step,epoch,seconds,split,loss,accuracy\n50,0,6.250,train,0.5,0.25\n100,1,12.500,train,0.30000000000000004,0.5\n"
    );
    log.write(&row(100, Split::Validation, &[("top5", 1.0)]))
        .unwrap();
    assert_eq!(
        text(&path),
        "step,epoch,seconds,split,loss,accuracy,top5\n50,0,6.250,train,0.5,0.25,\n\
         100,1,12.500,train,0.30000000000000004,0.5,\n100,1,12.500,validation,,,1\n"
    );
    assert_eq!(
        log.rows().unwrap()[1],
        row(100, Split::Train, &[("loss", 0.1 + 0.2), ("accuracy", 0.5)])
    );
}

#[test]
fn resuming_drops_later_rows() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("metrics.csv");
    let mut log = CsvLog::create(&path).unwrap();
    for step in [50, 100, 150] {
        log.write(&row(step, Split::Train, &[("loss", step as f64)]))
            .unwrap();
        log.write(&row(step, Split::Validation, &[("loss", -(step as f64))]))
            .unwrap();
    }
    drop(log);
    let mut log = CsvLog::resume(&path, 100).unwrap();
    log.write(&row(100, Split::Validation, &[("loss", 7.0)]))
        .unwrap();
    log.write(&row(150, Split::Train, &[("loss", 8.0)]))
        .unwrap();
    log.write(&row(150, Split::Train, &[("loss", 9.0)]))
        .unwrap();
    let seen: Vec<_> = log
        .rows()
        .unwrap()
        .iter()
        .map(|row| (row.step, row.split, row.metrics[0].1))
        .collect();
    use Split::{Train, Validation};
    assert_eq!(
        seen,
        [
            (50, Train, 50.0),
            (50, Validation, -50.0),
            (100, Train, 100.0),
            (100, Validation, 7.0),
            (150, Train, 8.0),
            (150, Train, 9.0)
        ]
    );
}

#[test]
fn truncated_table_keeps_its_complete_rows() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("metrics.csv");
    let mut log = CsvLog::create(&path).unwrap();
    for step in 1..4 {
        log.write(&row(
            step,
            Split::Train,
            &[("loss", 0.125), ("a \"b\", c\nd", 2.0)],
        ))
        .unwrap();
    }
    let whole = text(&path);
    let header = whole.find("d\"\n").unwrap() + 3;
    for cut in header..=whole.len() {
        std::fs::write(&path, &whole[..cut]).unwrap();
        let mut log = CsvLog::resume(&path, 10).unwrap();
        let complete = whole[header..cut].matches('\n').count();
        let rows = log.rows().unwrap();
        assert_eq!(rows.len(), complete, "cut at {cut}");
        assert!(
            rows.iter()
                .all(|row| row.metrics == [("loss".into(), 0.125), ("a \"b\", c\nd".into(), 2.0)])
        );
        log.write(&row(9, Split::Train, &[("loss", 1.0)])).unwrap();
        assert_eq!(log.rows().unwrap().len(), complete + 1);
    }
}

#[test]
fn carriage_return_in_a_name_round_trips() {
    let dir = tempfile::tempdir().unwrap();
    let mut log = CsvLog::create(dir.path().join("metrics.csv")).unwrap();
    log.write(&row(1, Split::Train, &[("loss\r", 0.5)]))
        .unwrap();
    assert_eq!(
        log.rows().unwrap(),
        [row(1, Split::Train, &[("loss\r", 0.5)])]
    );
}

#[test]
fn crlf_line_ends_are_read() {
    let text = b"step,epoch,seconds,split,\"loss\"\r\n1,0,0.125,train,0.5\r\n";
    assert_eq!(
        Table::parse(text).table.rows,
        [row(1, Split::Train, &[("loss", 0.5)])]
    );
}

#[test]
fn numbers_that_are_not_finite_come_back() {
    let dir = tempfile::tempdir().unwrap();
    let mut log = CsvLog::create(dir.path().join("metrics.csv")).unwrap();
    log.write(&row(
        1,
        Split::Test,
        &[("a", f64::NAN), ("b", f64::NEG_INFINITY)],
    ))
    .unwrap();
    let rows = log.rows().unwrap();
    assert!(rows[0].metrics[0].1.is_nan());
    assert_eq!(rows[0].metrics[1].1, f64::NEG_INFINITY);
}

#[test]
fn file_of_another_kind_is_moved_aside() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("metrics.csv");
    let aside = dir.path().join("metrics.csv.aside");
    for other in [
        &b"time;loss\n1;2\n"[..],
        b"\0\0\0\0",
        b"",
        b"step,epoch,seconds,split,\xff\n",
    ] {
        for open in [CsvLog::create, |path| CsvLog::resume(path, 10)] {
            std::fs::write(&path, other).unwrap();
            assert_eq!(open(&path).unwrap().rows().unwrap(), []);
            assert_eq!(std::fs::read(&aside).unwrap(), other);
            std::fs::remove_file(&aside).unwrap();
        }
    }
    CsvLog::create(&path).unwrap();
    assert!(!aside.exists(), "a table of ours is replaced");
}
