//! One shop: a server that sells from a stock that it shares with other shops.
//! Not here: who buys.

mod answer;
mod buy;
mod open;
mod serve;
mod shelves;
mod stock;
mod till;

pub(crate) use serve::serve;
pub(crate) use stock::ITEMS;
