//! `tenure schema`: the tables of an SQL store, as statements or made.

use serde::Serialize;
use tenure::StoreUrl;

use super::store::{Chosen, leave};
use crate::args::{Global, Schema};
use crate::output;
use crate::words::{Failure, note_as_is};

/// What the tables are, for programs.
#[derive(Serialize)]
struct Tables<'a> {
    store: String,
    statements: &'a str,
    applied: bool,
}

/// Prints the statements, or carries them out.
pub(super) async fn schema(global: &Global, schema: &Schema) -> Result<u8, Failure> {
    let store = Chosen::of(global)?;
    let statements = tenure::schema(store.url())
        .map_err(|error| Failure::of(format!("no tables for the store {}", store.shown), &error))?;
    if schema.apply {
        // Connecting makes the tables that are not there, and refuses those of others.
        let client = store.connect(None).await?;
        leave(&client).await;
        note_as_is(global.quiet, &format!("the tables are in {}", store.shown));
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
