//! Texts with names in braces.

/// Puts texts in the place of their names in braces.
pub(crate) fn fill<'a>(template: &str, text_of: impl Fn(&str) -> &'a str) -> String {
    let mut text = String::new();
    let mut rest = template;
    while let Some((before, after)) = rest.split_once('{')
        && let Some((name, after)) = after.split_once('}')
    {
        text.extend([before, text_of(name)]);
        rest = after;
    }
    text + rest
}
