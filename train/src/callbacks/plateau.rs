//! Reduces the learning rate when a metric of the validation stops improving.

use halite_core::{Error, Result};
use halite_nn::schedule::{Plateau, PlateauState};
use serde::{Deserialize, Serialize};

use crate::{
    callback::{Callback, Run},
    checkpoint::Exact,
    loggers::{Row, Split},
    monitor::Monitor,
};

/// Callback that reduces the learning rate when a metric of the validation has stopped improving:
/// PyTorch's `ReduceLROnPlateau`. It multiplies the optimizer's schedule by a factor.
///
/// ```
/// use halite_nn::schedule::Plateau;
/// use halite_train::ReduceLrOnPlateau;
///
/// # fn trainer(client: &halite_core::Client) -> halite_core::Result<halite_train::Trainer> {
/// let plateau = Plateau { factor: 0.5, patience: 3, ..Plateau::new("loss") };
/// halite_train::Trainer::builder(client).callback(ReduceLrOnPlateau::new(plateau)).build()
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct ReduceLrOnPlateau {
    rule: Plateau,
    /// The metric that it watches, once the run has begun.
    metric: String,
    state: PlateauState,
}

/// Its state in a checkpoint.
#[derive(Deserialize, Serialize)]
struct Saved {
    /// The text of the rule.
    rule: String,
    best: Option<Exact>,
    bad: u64,
    cooldown: u64,
    factor: Exact,
}

impl ReduceLrOnPlateau {
    /// Creates the callback with this rule.
    pub fn new(rule: Plateau) -> Self {
        ReduceLrOnPlateau {
            rule,
            metric: String::new(),
            state: PlateauState::new(),
        }
    }
}

/// Every number of a rule: what has to be the same after a resume.
fn text(rule: &Plateau) -> String {
    let Plateau {
        monitor,
        mode: _,
        factor,
        patience,
        threshold,
        cooldown,
        min_factor,
    } = rule;
    let mode = rule.mode();
    format!(
        "monitor={monitor}, mode={mode}, factor={factor}, patience={patience}, \
         threshold={threshold}, cooldown={cooldown}, min_factor={min_factor}"
    )
}

impl Callback for ReduceLrOnPlateau {
    fn changes_learning_rate(&self) -> bool {
        true
    }

    fn check(&mut self, metrics: &[String]) -> Result<()> {
        let monitor = Monitor::resolve("plateau", &self.rule.monitor, metrics)?;
        self.rule.check()?;
        if monitor.split != Split::Validation {
            let message =
                format!("`{monitor}` is not a metric of the validation, after which it acts");
            return Err(Error::invalid("plateau", message));
        }
        self.metric = monitor.metric;
        Ok(())
    }

    fn on_fit_start(&mut self, run: &mut Run) -> Result<()> {
        if run.resumed_from_step().is_none() {
            self.state = PlateauState::new();
        }
        run.set_learning_rate_factor(self.state.factor)
    }

    fn on_validation_end(&mut self, run: &mut Run, validation: &Row) -> Result<()> {
        let value = validation.get(&self.metric);
        if let Some(value) = value.filter(|value| !run.is_undefined(&self.metric, *value)) {
            self.state = self.rule.next(&self.state, value);
        }
        run.set_learning_rate_factor(self.state.factor)
    }

    fn state(&self) -> Option<serde_json::Value> {
        let PlateauState {
            best,
            bad,
            cooldown,
            factor,
        } = self.state;
        let saved = Saved {
            rule: text(&self.rule),
            best: best.map(Exact),
            bad,
            cooldown,
            factor: Exact(factor),
        };
        serde_json::to_value(saved).ok()
    }

    fn load_state(&mut self, state: serde_json::Value) -> Result<()> {
        let saved: Saved = serde_json::from_value(state).map_err(|error| {
            Error::invalid("plateau", "it is not the state of a plateau").caused_by(error)
        })?;
        let given = text(&self.rule);
        if saved.rule != given {
            let message = format!(
                "the checkpoint's rule is `{}`, and `{given}` is given: its best value and its \
                 counts are of the first one. Give that one, or begin a new run",
                saved.rule
            );
            return Err(Error::invalid("plateau", message));
        }
        self.state = PlateauState {
            best: saved.best.map(|Exact(best)| best),
            bad: saved.bad,
            cooldown: saved.cooldown,
            factor: saved.factor.0,
        };
        Ok(())
    }
}
