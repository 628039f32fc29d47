//! Configuration files of `halite train` and `halite finetune`: TOML with the names of the flags, and the configuration
//! that a run leaves in its directory.
//!
//! A file becomes flags before the command line is parsed, so both have the same names, values and
//! checks.

use std::{env, ffi::OsString, fs, path::Path};

use clap::{Arg, ArgAction, ArgMatches, Command, parser::ValueSource};
use halite::{
    Error, ErrorKind, Result,
    train::{Callback, callback::Run},
};
use halite_core::{edit_distance, files};
use toml::{Table, Value};

use crate::cli::{Session, launch};

/// Name of the file in the directory of a run.
pub(super) const FILE: &str = "config.toml";

/// Commands that train. Each is the key of its subcommand, the model and data to train.
const COMMANDS: [&str; 2] = ["train", "finetune"];

/// Flags that are about this process, not about what is trained.
const NOT_SAVED: [&str; 6] = [
    "out",
    "resume",
    "from",
    "allow-changes",
    "profile-steps",
    "range-test",
];

/// Flags whose default others replace. In a file the default would be a value that was given, and
/// limit a run that `--max-steps` makes longer.
const SAVED_IF_GIVEN: [&str; 1] = ["max-epochs"];

/// Name of the flag.
const CONFIG: &str = "config";

/// Largest file that is read, in bytes.
const MOST: u64 = 1 << 20;

/// The flag `--config`, for the help: [`expanded`] takes it out of the arguments.
pub(super) fn flag_of_config() -> Arg {
    Arg::new(CONFIG)
        .long(CONFIG)
        .value_name("FILE")
        .help(
            "Options from a TOML file, by the names of the flags, which replace them; each run \
             leaves its own as config.toml in --out",
        )
        .action(ArgAction::Set)
}

/// Returns the arguments with the options of the file that `halite train --config FILE` names, which
/// come before those of the command line. A flag that is given replaces that of the file.
///
/// # Errors
/// If the file cannot be read, or has a key that is unknown, doubled or of another type.
pub(super) fn expanded(cli: &Command, mut arguments: Vec<OsString>) -> Result<Vec<OsString>> {
    let place = |argument: &OsString| COMMANDS.iter().position(|&name| argument == name);
    let found = (arguments.iter().enumerate()).find_map(|(at, one)| Some((at, place(one)?)));
    let Some((at, key)) = found.map(|(at, place)| (at, COMMANDS[place])) else {
        return Ok(arguments);
    };
    let Some(group) = cli.find_subcommand(key) else {
        return Ok(arguments);
    };
    let mut given = arguments.split_off(at + 1);
    let Some(path) = taken_config(&mut given) else {
        arguments.extend(given);
        return Ok(arguments);
    };
    let path = Path::new(&path);
    let of_file =
        |message: String| Error::invalid("config", format!("{}: {message}", path.display()));
    let mut table = read(path)?;
    let named = given.first().and_then(|name| group.find_subcommand(name));
    let command = match (table.remove(key), named) {
        (None, Some(command)) => command,
        (None, None) => {
            let message = format!("no `{key} = \"NAME\"`; expected one of {}", names(group));
            return Err(of_file(message));
        }
        (Some(name), named) => {
            let known = name.as_str().and_then(|name| group.find_subcommand(name));
            let Some(known) = known else {
                let message = format!("`{key} = {name}`; expected one of {}", names(group));
                return Err(of_file(message));
            };
            if let Some(named) = named.filter(|named| named.get_name() != known.get_name()) {
                let (named, known) = (named.get_name(), known.get_name());
                let message = format!("it is of `halite {key} {known}`, not of `{named}`");
                return Err(of_file(message));
            }
            known
        }
    };
    let flags = flags(key, command, table, &given).map_err(of_file)?;
    if named.is_none() {
        arguments.push(command.get_name().into());
    } else {
        arguments.push(given.remove(0));
    }
    arguments.extend(flags.into_iter().map(OsString::from));
    arguments.extend(given);
    Ok(arguments)
}

/// Takes `--config FILE` out of the arguments, and returns the file.
fn taken_config(given: &mut Vec<OsString>) -> Option<OsString> {
    let text = |argument: &OsString| argument.to_string_lossy().into_owned();
    let at = given
        .iter()
        .position(|one| one == "--config" || text(one).starts_with("--config="))?;
    if given[at] != "--config" {
        let file = text(&given.remove(at));
        return file.split_once('=').map(|(_, file)| file.into());
    }
    // Without a file, clap says what is missing.
    (at + 1 < given.len()).then(|| given.drain(at..at + 2).nth(1))?
}

/// Reads a configuration.
///
/// # Errors
/// If the file cannot be read, or is not TOML.
pub(super) fn read(path: &Path) -> Result<Table> {
    let io = |error: std::io::Error| {
        let message = format!("cannot read {}", path.display());
        Error::new(ErrorKind::Io, "config", message).caused_by(error)
    };
    let size = fs::metadata(path).map_err(io)?.len();
    if size > MOST {
        let message = format!(
            "{} has {size} bytes; a configuration is text",
            path.display()
        );
        return Err(Error::invalid("config", message));
    }
    let text = files::read_input_text(path).map_err(io)?;
    text.parse().map_err(|error: toml::de::Error| {
        let message = format!("{}: {}", path.display(), error.to_string().trim_end());
        Error::invalid("config", message)
    })
}

/// An option of a configuration as text, if it is there.
pub(super) fn text(table: &Table, key: &str) -> Option<String> {
    match table.get(key)? {
        Value::String(text) => Some(text.clone()),
        value @ (Value::Integer(_) | Value::Float(_)) => Some(value.to_string()),
        _ => None,
    }
}

/// The flags of a table of options, without those that are `given`.
fn flags(
    group: &str,
    command: &Command,
    table: Table,
    given: &[OsString],
) -> Result<Vec<String>, String> {
    let (mut known, mut flags) = (Vec::<(String, &Arg)>::new(), Vec::new());
    for (key, value) in table {
        let name = key.replace('_', "-");
        let is_named = |arg: &&Arg| longs(arg).any(|long| long == name);
        let arg = options(command).find(is_named);
        let arg = arg.ok_or_else(|| unknown(group, command, &key))?;
        if let Some((other, _)) = known.iter().find(|(_, one)| one.get_id() == arg.get_id()) {
            return Err(format!(
                "`{key}` and `{other}` are the same option; give one of them"
            ));
        }
        let flag = flag(arg, &key, value)?;
        if !longs(arg).any(|long| is_given(given, long)) {
            flags.extend(flag);
        }
        known.push((key, arg));
    }
    Ok(flags)
}

/// The flag of one option; `None` for a switch that is off.
fn flag(arg: &Arg, key: &str, value: Value) -> Result<Option<String>, String> {
    let long = arg.get_long().unwrap_or_default();
    let text = |value: Value| match value {
        Value::String(text) => Some(text),
        Value::Integer(number) => Some(number.to_string()),
        // With a point: 1.0 is a fraction where 1 is a number.
        Value::Float(number) => Some(format!("{number:?}")),
        _ => None,
    };
    let is_switch = matches!(arg.get_action(), ArgAction::SetTrue);
    let allows_none = arg
        .get_num_args()
        .is_some_and(|count| count.min_values() == 0);
    match value {
        Value::Boolean(is_on) if is_switch || allows_none => Ok(is_on.then(|| format!("--{long}"))),
        value if is_switch => Err(format!("`{key} = {value}`; expected true or false")),
        Value::Array(values) => {
            let texts = values.into_iter().map(text).collect::<Option<Vec<_>>>();
            let texts = texts.filter(|_| arg.get_value_delimiter().is_some());
            let texts = texts.ok_or_else(|| format!("`{key}` is a list; expected one value"))?;
            Ok(Some(format!("--{long}={}", texts.join(","))))
        }
        value => {
            let shown = value.to_string();
            let text = text(value)
                .ok_or_else(|| format!("`{key} = {shown}`; expected a text or a number"))?;
            Ok(Some(format!("--{long}={text}")))
        }
    }
}

/// Names of an option, without dashes.
fn longs(arg: &Arg) -> impl Iterator<Item = &str> {
    let aliases = arg.get_all_aliases().unwrap_or_default();
    arg.get_long().into_iter().chain(aliases)
}

/// The options of a command that a file can have.
fn options(command: &Command) -> impl Iterator<Item = &Arg> {
    let is_flag = |arg: &&Arg| arg.get_long().is_some_and(|long| long != CONFIG);
    command.get_arguments().filter(is_flag)
}

fn is_given(given: &[OsString], long: &str) -> bool {
    let flag = format!("--{long}");
    given.iter().any(|one| {
        let one = one.to_string_lossy();
        let name = one.split_once('=').map_or(&*one, |(name, _)| name);
        name == flag
    })
}

fn names(command: &Command) -> String {
    let names = command.get_subcommands().map(Command::get_name);
    names.collect::<Vec<_>>().join(", ")
}

/// The message of an unknown key, with the nearest name.
fn unknown(group: &str, command: &Command, key: &str) -> String {
    let name = key.replace('_', "-");
    let nearest =
        (options(command).flat_map(longs)).min_by_key(|known| edit_distance(known, &name));
    let nearest = nearest.map_or(String::new(), |name| format!("; did you mean `{name}`?"));
    let command = command.get_name();
    format!("unknown key `{key}`{nearest} `halite {group} {command} --help` lists all")
}

/// Remembers the configuration of a command that trains, defaults included, but for
/// [`SAVED_IF_GIVEN`].
pub(super) fn remember(cli: &Command, matches: &ArgMatches) {
    let matched = COMMANDS.iter().find_map(|key| {
        let (name, matches) = matches.subcommand_matches(key)?.subcommand()?;
        let command = cli.find_subcommand(key)?.find_subcommand(name)?;
        Some((key, command, matches))
    });
    let Some((key, command, matches)) = matched else {
        return;
    };
    let mut text = format!(
        "# halite {}: `halite {key} --config FILE` repeats this run; flags replace these options.\n\
         {key} = {}\n",
        env!("CARGO_PKG_VERSION"),
        Value::from(command.get_name())
    );
    for arg in options(command) {
        let Some(long) = arg.get_long().filter(|long| !NOT_SAVED.contains(long)) else {
            continue;
        };
        if let Some(value) = resolved(arg, matches) {
            text += &format!("{long} = {value}\n");
        }
    }
    _ = Session::current().config.set(text);
}

/// The value of an option in this invocation, if it has one.
fn resolved(arg: &Arg, matches: &ArgMatches) -> Option<Value> {
    let id = arg.get_id().as_str();
    let is_conditional = arg
        .get_long()
        .is_some_and(|long| SAVED_IF_GIVEN.contains(&long));
    if is_conditional && matches.value_source(id) == Some(ValueSource::DefaultValue) {
        return None;
    }
    if matches!(arg.get_action(), ArgAction::SetTrue) {
        return matches.get_flag(id).then_some(Value::Boolean(true));
    }
    let texts: Vec<String> = (matches.get_raw(id)?)
        .map(|text| text.to_string_lossy().into_owned())
        .collect();
    match &texts[..] {
        [text] => Some(value(text)),
        texts => Some(Value::String(texts.join(","))),
    }
}

/// A number where its text is the one that it would be given back as, else a string.
fn value(text: &str) -> Value {
    let integer = text
        .parse::<i64>()
        .ok()
        .filter(|number| number.to_string() == text);
    let float = text
        .parse::<f64>()
        .ok()
        .filter(|number| format!("{number:?}") == text);
    match (integer, float) {
        (Some(number), _) => Value::Integer(number),
        (_, Some(number)) if number.is_finite() => Value::Float(number),
        _ => Value::String(text.to_string()),
    }
}

/// The line of a configuration that names the launch of this process, if `halite launch` started it.
fn line_of_launch() -> Option<String> {
    let number = env::var(launch::NUMBER).ok()?;
    Some(format!("# by `halite launch`, {number}\n"))
}

/// Returns whether the launch of this process began or resumed the run in `out` before.
pub(super) fn is_of_this_launch(out: &Path) -> bool {
    line_of_launch().is_some_and(|line| {
        files::read_input_text(&out.join(FILE)).is_ok_and(|text| text.ends_with(&line))
    })
}

/// Writes the configuration of this invocation into the directory of the run.
#[derive(Debug)]
pub(super) struct SaveConfig;

impl Callback for SaveConfig {
    fn name(&self) -> String {
        FILE.to_string()
    }

    fn on_fit_start(&mut self, run: &mut Run) -> Result<()> {
        if let (Some(out), Some(text)) = (run.out(), Session::current().config.get()) {
            let text = text.clone() + &line_of_launch().unwrap_or_default();
            // The run is worth more than its description.
            if let Err(error) = files::replace(&out.join(FILE), text.as_bytes()) {
                remark!("cannot write {FILE} into {}: {error}", out.display());
            }
        }
        Ok(())
    }
}
