//! The names by which a browser may ask for the pages.

use std::net::IpAddr;

/// Returns whether a request with this `Host` header is answered.
///
/// A hostile page can make its own name point to this machine, and would then read the answers (DNS rebinding). So a name
/// must be known. An address cannot be rebound.
pub(super) fn is_allowed(host: &str, bound: IpAddr, names: &[String]) -> bool {
    let Some(name) = without_port(host.trim()) else { return false };
    if name.eq_ignore_ascii_case("localhost") || names.iter().any(|known| known.eq_ignore_ascii_case(name)) {
        return true;
    }
    let bare = name.strip_prefix('[').and_then(|name| name.strip_suffix(']')).unwrap_or(name);
    bare.parse::<IpAddr>().is_ok_and(|address| address.is_loopback() || address == bound || bound.is_unspecified())
}

/// Returns the name of a `Host` header without its port; `None` if the port is none.
fn without_port(host: &str) -> Option<&str> {
    let end = host.rfind(']').map_or(0, |end| end + 1);
    match host[end..].rfind(':') {
        None => Some(host),
        Some(colon) => {
            let (name, port) = host.split_at(end + colon);
            port[1..].bytes().all(|byte| byte.is_ascii_digit()).then_some(name)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_known_names_and_own_addresses_are_allowed() {
        let names = ["trainer.lan".to_string()];
        for (bound, host, expected) in [
            ("127.0.0.1", "127.0.0.1:8080", true),
            ("127.0.0.1", "localhost", true),
            ("127.0.0.1", "LocalHost:1", true),
            ("127.0.0.1", "[::1]:8080", true),
            ("127.0.0.1", "trainer.lan:80", true),
            ("127.0.0.1", "evil.example", false),
            ("127.0.0.1", "localhost.evil.example:80", false),
            ("127.0.0.1", "127.0.0.1.evil.example", false),
            ("127.0.0.1", "192.168.0.7", false),
            ("127.0.0.1", "", false),
            ("127.0.0.1", "localhost:80:x", false),
            ("192.168.0.7", "192.168.0.7:80", true),
            ("192.168.0.7", "192.168.0.8", false),
            ("0.0.0.0", "192.168.0.7:80", true),
            ("0.0.0.0", "evil.example:80", false),
            ("::", "[fe80::1]:80", true),
        ] {
            assert_eq!(is_allowed(host, bound.parse().unwrap(), &names), expected, "{host} at {bound}");
        }
    }
}
