use std::io::Write as _;

use halite_core::ErrorKind;
use halite_data::Table;

fn parse(text: &[u8]) -> Table {
    Table::parse("t.csv", text).unwrap()
}

#[track_caller]
fn refused(text: &[u8], part: &str) {
    let error = Table::parse("t.csv", text).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Corrupt);
    let error = error.to_string();
    assert!(error.contains("t.csv: ") && error.contains(part), "{error}");
}

#[test]
fn cells_are_those_of_the_rfc() {
    let table = parse(b"a,\"b c\",d\r\n1,\"x, \"\"y\"\"\nz\",\r\n\r\n2,,\"\"\r\n");
    assert_eq!(table.columns(), ["a", "b c", "d"]);
    assert_eq!(table.strings("b c").unwrap(), ["x, \"y\"\nz", ""]);
    assert_eq!(table.strings("d").unwrap(), ["", ""]);
    assert_eq!(table.column::<u8>("a").unwrap(), [1, 2]);
    assert_eq!([0, 1].map(|row| table.line(row)), [2, 5]);
}

#[test]
fn tables_of_gzip_are_read() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("t.csv.gz");
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    encoder.write_all(b"id,kind\n1,cat\n").unwrap();
    std::fs::write(&path, encoder.finish().unwrap()).unwrap();
    assert_eq!(
        Table::read(&path).unwrap().strings("kind").unwrap(),
        ["cat"]
    );
    std::fs::write(&path, b"\xfd7zXZ\0\0").unwrap();
    let error = Table::read(&path).unwrap_err().to_string();
    assert!(
        error.contains("t.csv.gz: it is compressed with xz; decompress it"),
        "{error}"
    );
}

#[test]
fn categories_have_no_twins() {
    let table = parse(b"a,b\n x,p1\n x,p 1\ny,p1\n");
    assert_eq!(table.categories("a").unwrap(), ["x", "x", "y"]);
    let error = table.categories("b").unwrap_err().to_string();
    let part = "line 3, column `b`: `p 1` and `p1` of line 2 differ only by blanks";
    assert!(error.contains(part), "{error}");
}

#[test]
fn semicolons_or_tabs_separate_where_no_comma_does() {
    let table = parse(b"file;\"a;b\";c\n1.jpg;2,5;\"x;y\"\n");
    assert_eq!(table.columns(), ["file", "a;b", "c"]);
    assert_eq!(table.strings("a;b").unwrap(), ["2,5"]);
    assert_eq!(table.strings("c").unwrap(), ["x;y"]);
    let table = parse(b"\r\nfile\tlabel\r\n1.jpg\tcat; dog\r\n");
    assert_eq!(table.strings("label").unwrap(), ["cat; dog"]);
    // A comma in the header decides.
    assert_eq!(parse(b"a;b,c\n1;2,3\n").columns(), ["a;b", "c"]);
    let part = "line 2 has 1 cells, the header has 2, separated by semicolons";
    refused(b"a;b\n1,2\n", part);
}

#[test]
fn byte_order_mark_is_skipped() {
    let table = parse(b"\xef\xbb\xbf\"a\",b\n1,2\n");
    assert_eq!(table.columns(), ["a", "b"]);
    refused(b"\xff\xfea\0,\0", "it is UTF-16");
}

#[test]
fn damaged_tables_are_refused_with_the_line() {
    refused(b"", "it is empty");
    refused(b"a,b\n1,2\n3\n", "line 3 has 1 cells, the header has 2");
    refused(b"a,b\n1,2,3\n", "line 2 has 3 cells");
    refused(
        b"a,b,a\n",
        "columns 1 and 3 of the header are both named `a`",
    );
    refused(b"a,b\n1,\"2\n3,4\n5,6\n", "quote that opens on line 2");
    refused(b"a,b\n1,2\n3,\xff\n", "line 3: cell 2 is not UTF-8");
}

#[test]
fn values_are_refused_with_line_and_column() {
    let table = parse(b"a,b\n1, 2.5 \n1,two\n");
    let error = table.column::<f32>("b").unwrap_err().to_string();
    let part = "t.csv: line 3, column `b`: `two` is not of type f32";
    assert!(error.contains(part), "{error}");
    let error = table.column::<f32>("c").unwrap_err().to_string();
    assert!(error.contains("no column `c`; it has `a`, `b`"), "{error}");
    assert_eq!(
        table.select(&[0]).unwrap().column::<f32>("b").unwrap(),
        [2.5]
    );
    assert!(table.select(&[2]).is_err());
}

#[test]
fn missing_table_is_named() {
    let error = Table::read("no/such.csv").unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Io);
    assert!(error.to_string().contains("no/such.csv"));
}
