//! Who pays for a job, and what kind of work it is: rules over its facts.
//!
//! Collectors and imports report [`JobFacts`], never a team. Rules are applied as late as possible, so an open
//! month always follows today's rules.

mod book;
mod facts;

pub use book::{Attribution, Condition, Decision, Explanation, Outcome, Rule, RuleBook, Source, Test};
pub use facts::{FactName, JobFacts};

/// What kind of work a job is. Statements have a section for each.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Workload {
    /// Making a model.
    Training,
    /// Answering requests.
    Serving,
    /// Interactive work.
    Notebook,
    /// Measuring a model.
    Evaluation,
    /// Anything else, and what no rule names.
    Other,
}

impl Workload {
    /// All, in the order of a statement's sections.
    pub const ALL: [Workload; 5] =
        [Workload::Training, Workload::Serving, Workload::Notebook, Workload::Evaluation, Workload::Other];

    /// The word in files.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Workload::Training => "training",
            Workload::Serving => "serving",
            Workload::Notebook => "notebook",
            Workload::Evaluation => "evaluation",
            Workload::Other => "other",
        }
    }

    /// Reads the word of [`Workload::as_str`].
    #[must_use]
    pub fn parse(text: &str) -> Option<Workload> {
        Workload::ALL.into_iter().find(|workload| workload.as_str() == text)
    }
}

/// On what terms capacity was given; each has its own price.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum ServiceClass {
    /// As asked for.
    OnDemand,
    /// May be taken away.
    Preemptible,
    /// Set aside.
    Reserved,
}

impl ServiceClass {
    /// All, in order.
    pub const ALL: [ServiceClass; 3] = [ServiceClass::OnDemand, ServiceClass::Preemptible, ServiceClass::Reserved];

    /// The word in files.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            ServiceClass::OnDemand => "on-demand",
            ServiceClass::Preemptible => "preemptible",
            ServiceClass::Reserved => "reserved",
        }
    }

    /// Reads the word of [`ServiceClass::as_str`].
    #[must_use]
    pub fn parse(text: &str) -> Option<ServiceClass> {
        ServiceClass::ALL.into_iter().find(|class| class.as_str() == text)
    }
}
