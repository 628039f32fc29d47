//! Fuzzing of the table's parser: see [`fuzz`](crate::fuzz).

use super::Table;

pub(crate) fn table(data: &[u8]) -> bool {
    let parsed = Table::parse(data);
    if parsed.table.names.is_empty() && parsed.table.rows.is_empty() {
        return false;
    }
    let printed = parsed.table.to_text();
    let again = Table::parse(printed.as_bytes());
    assert_eq!(
        again.problem, None,
        "what is printed is parsed: {printed:?}"
    );
    // Times are printed in milliseconds, so the text is compared and not the rows.
    assert_eq!(again.table.to_text(), printed, "a table survives printing");
    assert_eq!(
        again.table.rows.len(),
        parsed.table.rows.len(),
        "no row is lost"
    );
    parsed.problem.is_none()
}

pub(crate) fn table_seeds() -> Vec<Vec<u8>> {
    let texts = [
        "step,epoch,seconds,split,loss,accuracy\n50,0,6.250,train,0.5,0.25\n100,1,12.500,validation,NaN,\n",
        "step,epoch,seconds,split,loss,\"a \"\"b\"\", \
         c\nd\"\n1,0,0.125,test,-inf,2\n2,0,0.250,train,,1e-300\n",
        "step,epoch,seconds,split\n",
    ];
    texts.iter().map(|text| text.as_bytes().to_vec()).collect()
}
