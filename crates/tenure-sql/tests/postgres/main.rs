//! Tests on PostgreSQL servers, which cases share unless they restart them.
#![cfg(feature = "postgres")]

mod connections;
mod cost;
mod doctor;
mod faults;
mod places;
#[path = "../postgres_fixture/mod.rs"]
mod postgres_fixture;
mod refusals;
mod textbook;
