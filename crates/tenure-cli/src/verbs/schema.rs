//! `tenure schema`: prints the tables of an SQL store as statements, or creates them.

use serde::Serialize;
use tenure::StoreUrl;

use super::store::ChosenStore;
use crate::args::{Global, Schema};
use crate::messages::{Failure, note_as_is};
use crate::output;

/// The tables as a JSON object.
#[derive(Serialize)]
struct Tables<'a> {
    store: String,
    statements: &'a str,
    applied: bool,
}

/// Prints the statements, or executes them.
pub(super) async fn schema(global: &Global, schema: &Schema) -> Result<u8, Failure> {
    let store = ChosenStore::of(global)?;
    let statements = tenure::schema(store.url())
        .map_err(|error| Failure::of(format!("no tables for the store {}", store.masked_url), &error))?;
    if schema.apply {
        tenure::create_schema(store.url()).await.map_err(|error| {
            Failure::of(
                format!("the tables were not created in the store {}", store.masked_url),
                &error,
            )
        })?;
        note_as_is(global.quiet, &format!("the tables are in {}", store.masked_url));
    }
    if global.json {
        let tables = Tables {
            store: scheme(store.url()),
            statements: &statements,
            applied: schema.apply,
        };
        output::print(&output::object(&tables))?;
    } else if !schema.apply {
        output::print(statements.as_bytes())?;
    }
    Ok(0)
}

fn scheme(url: &str) -> String {
    StoreUrl::parse(url).map_or_else(|_| String::new(), |url| url.scheme().to_owned())
}
