//! How things are printed: tables for people, JSON for programs, errors for both.

use std::{path::Path, process::ExitCode};

use anyhow::{Context, bail};
use serde::Serialize;

use crate::cli::Output;

/// Rows under headings, each column as wide as its longest cell.
pub struct Table {
    headings: Vec<&'static str>,
    rows: Vec<Vec<String>>,
}

impl Table {
    /// An empty one.
    pub fn new(headings: impl IntoIterator<Item = &'static str>) -> Self {
        Self { headings: headings.into_iter().collect(), rows: Vec::new() }
    }

    /// Adds a row.
    pub fn row(&mut self, cells: impl IntoIterator<Item = String>) {
        self.rows.push(cells.into_iter().collect());
    }

    /// Prints it.
    pub fn print(&self) {
        let width = |column: usize| {
            let cells = self.rows.iter().map(|row| row[column].chars().count());
            cells.chain([self.headings[column].len()]).max().unwrap_or(0)
        };
        let widths: Vec<usize> = (0..self.headings.len()).map(width).collect();
        let line = |cells: &[&str]| {
            let cells = cells.iter().zip(&widths).map(|(cell, width)| format!("{cell:width$}"));
            println!("{}", cells.collect::<Vec<_>>().join("  ").trim_end());
        };
        line(&self.headings);
        for row in &self.rows {
            line(&row.iter().map(String::as_str).collect::<Vec<_>>());
        }
    }
}

/// Prints a list as a table, with a line for when it is empty, or as a JSON array.
pub fn list<T: Serialize>(output: Output, items: &[T], table: &Table, none: &str) -> anyhow::Result<()> {
    match output {
        Output::Json => println!("{}", serde_json::to_string_pretty(items)?),
        Output::Table if items.is_empty() => println!("{none}"),
        Output::Table => table.print(),
    }
    Ok(())
}

/// Prints one thing as JSON, or as lines of a name and a value; what has no value is left out.
pub fn details(output: Output, item: &serde_json::Value, lines: &[(&str, String)]) -> anyhow::Result<()> {
    if output == Output::Json {
        println!("{}", serde_json::to_string_pretty(item)?);
        return Ok(());
    }
    let width = lines.iter().map(|(name, _)| name.len()).max().unwrap_or(0);
    for (name, value) in lines.iter().filter(|(_, value)| !value.is_empty()) {
        // Further lines of a value stand below its first one.
        let value = value.replace('\n', &format!("\n{:width$}  ", ""));
        println!("{name:width$}  {value}");
    }
    Ok(())
}

/// An attribute as people read it: text as it is, nothing for nothing, anything else as JSON.
pub fn text(value: &serde_json::Value) -> String {
    match value {
        serde_json::Value::Null => String::new(),
        serde_json::Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

/// A text file that a person wrote, unless it is absurdly large.
pub fn read_bounded(file: &Path, most: u64) -> anyhow::Result<String> {
    let name = file.display();
    let size = std::fs::metadata(file).with_context(|| format!("{name}: cannot be read"))?.len();
    if size > most {
        bail!("{name}: its {size} bytes are more than the {most} that such a file may have");
    }
    std::fs::read_to_string(file).with_context(|| format!("{name}: cannot be read as text"))
}

/// Tells what went wrong, with the causes beneath, and that it failed.
pub fn failure(error: &anyhow::Error) -> ExitCode {
    eprintln!("error: {error}");
    let mut before = error.to_string();
    for cause in error.chain().skip(1) {
        let text = cause.to_string();
        // Some libraries repeat their cause in their own words; once is enough.
        if !before.contains(&text) {
            eprintln!("  because: {text}");
        }
        before = text;
    }
    ExitCode::FAILURE
}

/// A time span as people say it.
pub fn span(seconds: f64) -> String {
    match seconds {
        s if s < 10.0 => format!("{s:.1} s"),
        s if s < 120.0 => format!("{s:.0} s"),
        s => format!("{:.0} min {:.0} s", (s / 60.0).floor(), s % 60.0),
    }
}
