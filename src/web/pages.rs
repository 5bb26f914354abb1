//! The handlers: each takes its address apart, asks one workflow, and gives a page.

use actix_web::HttpResponse;
use actix_web::http::header;
use actix_web::web::{Data, Path, block};
use gpuledger_db::period;

use super::answers::Failure;
use super::door::Visitor;
use crate::config::Config;
use crate::error::AppError;
use crate::export::{csv, html, live_page};
use crate::workflows::held_now::held_now;
use crate::workflows::open_month::open_month;
use crate::workflows::{migrate, statements};

pub(super) async fn home(_: Visitor) -> HttpResponse {
    HttpResponse::SeeOther().insert_header((header::LOCATION, "/statements")).finish()
}

pub(super) async fn live(_: Visitor, config: Data<Config>) -> Result<HttpResponse, Failure> {
    if !config.live {
        return Err(Failure::NothingHere);
    }
    let page = off_the_loop(move || {
        let mut db = migrate::open(&config.database, &config.calendar)?;
        let month = config.calendar.period_of(crate::clock::now()).month;
        let (nodes, month) = (held_now(&mut db)?, open_month(&mut db, &config.calendar, month, None)?);
        live_page::page(&config, &nodes, &month)
    });
    Ok(page_of(page.await?))
}

pub(super) async fn list(_: Visitor, config: Data<Config>) -> Result<HttpResponse, Failure> {
    let page = off_the_loop(move || {
        let mut db = migrate::open(&config.database, &config.calendar)?;
        let closed = period::all(&mut db)?.into_iter().rev().filter(|state| state.closing.is_some());
        let now = crate::clock::now();
        let periods = closed.map(|state| statements::of_period(&mut db, &config.calendar, state.period.month, now));
        let periods = periods.collect::<Result<Vec<_>, _>>()?;
        html::list_page(&config, html::Links::Server, &periods)
    });
    Ok(page_of(page.await?))
}

pub(super) async fn statement(_: Visitor, config: Data<Config>, number: Path<String>) -> Result<HttpResponse, Failure> {
    let page = off_the_loop(move || {
        let mut db = migrate::open(&config.database, &config.calendar)?;
        let view = statements::by_number(&mut db, &number)?;
        let details = statements::details(&mut db, &config.calendar, &view)?;
        html::statement_page(&config, html::Links::Server, &view, &details)
    });
    Ok(page_of(page.await?))
}

pub(super) async fn statement_csv(
    _: Visitor,
    config: Data<Config>,
    number: Path<String>,
) -> Result<HttpResponse, Failure> {
    let table = off_the_loop(move || {
        let mut db = migrate::open(&config.database, &config.calendar)?;
        let view = statements::by_number(&mut db, &number)?;
        Ok((view.head.number.clone(), csv::statement(&view)?))
    });
    let (number, text) = table.await?;
    // The number is one that is stored, not the one asked for.
    let disposition = format!("attachment; filename=\"{number}.csv\"");
    Ok(HttpResponse::Ok()
        .content_type("text/csv; charset=utf-8; header=present")
        .insert_header((header::CONTENT_DISPOSITION, disposition))
        .body(text))
}

pub(super) async fn asset(name: Path<String>) -> Result<HttpResponse, Failure> {
    let found = html::ASSETS.into_iter().chain([live_page::ASSET]).find(|(asset, _, _)| *asset == name.as_str());
    let (_, content_type, bytes) = found.ok_or(Failure::NothingHere)?;
    Ok(HttpResponse::Ok().content_type(content_type).body(bytes))
}

pub(super) async fn nothing_here() -> Result<HttpResponse, Failure> {
    Err(Failure::NothingHere)
}

fn page_of(html: String) -> HttpResponse {
    HttpResponse::Ok().content_type("text/html; charset=utf-8").body(html)
}

/// Runs work that waits for the database where it holds up no other request.
async fn off_the_loop<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, AppError> + Send + 'static,
) -> Result<T, Failure> {
    match block(work).await {
        Ok(done) => Ok(done?),
        Err(error) => {
            tracing::error!(%error, "no thread for a page");
            Err(Failure::Failed)
        }
    }
}
