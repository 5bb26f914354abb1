//! Teams, prices and rules together, as they are in force or as someone would have them.

use gpuledger_db::catalogue::{self, CatalogueKind};
use gpuledger_db::{Db, dimensions};
use gpuledger_domain::calendar::BillingCalendar;
use gpuledger_domain::pricing::PriceBook;
use gpuledger_domain::rules::RuleBook;
use gpuledger_domain::teams::TeamBook;
use gpuledger_domain::time::Instant;

use crate::error::AppError;
use crate::files::{SourceText, prices, rules, teams};

/// All that turns usage into charges, with the versions it comes from.
#[derive(Clone, Debug, Default)]
pub struct Books {
    /// Who pays.
    pub teams: TeamBook,
    /// What it costs.
    pub prices: PriceBook,
    /// Who is charged for which job.
    pub rules: RuleBook,
    /// The versions of the three, in this order.
    pub versions: [i32; 3],
}

impl Books {
    /// The books in force.
    ///
    /// # Errors
    /// The database's; also where a stored text cannot be read by this version.
    pub fn in_force(db: &mut Db, calendar: &BillingCalendar) -> Result<Books, AppError> {
        let teams = catalogue::current(db, CatalogueKind::Teams)?;
        let prices = catalogue::current(db, CatalogueKind::Prices)?;
        let rules = catalogue::current(db, CatalogueKind::Rules)?;
        Books::of_versions([&teams, &prices, &rules], calendar)
    }

    /// The books of three stored versions: teams, prices, rules.
    ///
    /// # Errors
    /// Where a stored text cannot be read by this version.
    pub fn of_versions(
        [teams, prices, rules]: [&catalogue::CatalogueVersion; 3],
        calendar: &BillingCalendar,
    ) -> Result<Books, AppError> {
        let source = |kind: CatalogueKind, stored: &catalogue::CatalogueVersion| {
            SourceText::new(&format!("{} version {}", kind.as_str(), stored.version), &stored.body)
        };
        Ok(Books {
            teams: teams::parse(&source(CatalogueKind::Teams, teams), calendar)?,
            prices: prices::parse(&source(CatalogueKind::Prices, prices), calendar, prices::Checks::Stored)?,
            rules: rules::parse(&source(CatalogueKind::Rules, rules), calendar)?,
            versions: [teams.version, prices.version, rules.version],
        })
    }

    /// The first of teams, prices and rules of which no version was ever applied.
    #[must_use]
    pub fn never_applied(&self) -> Option<&'static str> {
        let kinds = [CatalogueKind::Teams, CatalogueKind::Prices, CatalogueKind::Rules];
        kinds.into_iter().zip(self.versions).find(|(_, version)| *version == 0).map(|(kind, _)| kind.as_str())
    }

    /// Every instant at which a team, price, rule or pool changes, in order: the cuts that matter to money.
    #[must_use]
    pub fn changes(&self, memberships: &dimensions::Memberships) -> Vec<Instant> {
        let mut changes: Vec<Instant> = self.teams.changes().into_iter().collect();
        changes.extend(self.prices.changes());
        changes.extend(self.rules.changes());
        changes.extend(memberships.changes());
        changes.sort_unstable();
        changes.dedup();
        changes
    }
}
