//! Tests of redaction: random secrets and names never appear in the cleaned text.

use proptest::prelude::*;
use serde_json::json;

use super::*;

fn variables(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
    pairs.iter().map(|(key, value)| ((*key).into(), (*value).into())).collect()
}

fn ann() -> Redactor {
    let pairs = [("HOME", "/home/ann"), ("USER", "ann"), ("HF_TOKEN", "abc/def+123"), ("MY_PASS", "1")];
    Redactor::new(&variables(&pairs), Some("node7.cluster.example"))
}

#[test]
fn texts_lose_secrets_and_names() {
    let check = |text: &str, expected: &str| assert_eq!(ann().text(text), expected, "{text}");
    check("nothing to hide: 64 GiB free at 10:30", "nothing to hide: 64 GiB free at 10:30");
    check("/home/ann/runs/1, /home/ann", "~/runs/1, ~");
    check("/home/anna/runs by ann", "/home/anna/runs by <user>");
    check("channel ann_2 of ann", "channel <user>_2 of <user>");
    check("ssh node7 or node7.cluster.example, not node71", "ssh <host> or <host>, not node71");
    check("x=abc/def+123y", "x=<redacted>y");
    check("https://bob:pw@host/x", "https://<redacted>@host/x");
    check("https://bob:p@w:/@host/x", "https://<redacted>@host/x");
    check("https://onlytoken@host/x", "https://<redacted>@host/x");
    check("see https://host/pkg@1.2 now", "see https://host/pkg@1.2 now");
    check("mirror bob:pw@host:80", "mirror <redacted>@host:80");
    check("git@github.com:a/b", "git@github.com:a/b");
    check("/usr/lib:/opt/x@2/lib", "/usr/lib:/opt/x@2/lib");
    check("https://h/?a=1&api_key=xyz&b=2", "https://h/?a=1&api_key=<redacted>&b=2");
    check(r#"{"password": "x y", "n": 1}"#, r#"{"password": "<redacted>", "n": 1}"#);
    check("Authorization: Bearer a.b.c", "Authorization: Bearer <redacted>");
    check("train --api-token qqq --steps 3", "train --api-token <redacted> --steps 3");
    check("id hf_abcdefghijklmnop.", "id <redacted>");
    check("hf_short and sk-x", "hf_short and sk-x");
}

#[test]
fn variables_lose_secrets_and_names() {
    let check = |name: &str, value: &str, expected: &str| {
        assert_eq!(ann().variable(name, value), expected, "{name}={value}");
    };
    check("CUDA_VISIBLE_DEVICES", "0,1", "0,1");
    check("PLIMSOLL_TOKEN", "x", "<redacted>");
    check("PLIMSOLL_TOKEN", "", "");
    check("SLURM_JOB_USER", "bob", "<redacted>");
    check("SLURM_NODELIST", "node[1-9]", "<redacted>");
    check("SLURM_NNODES", "2", "2");
    check("LD_LIBRARY_PATH", "/home/ann/lib:/usr/lib", "~/lib:/usr/lib");
}

#[test]
fn numbers_stay_and_texts_under_secret_names_go() {
    let value = json!({ "tokens_per_second": 12.5, "api": { "key": ["a", 3] }, "path": "/home/ann/x" });
    let clean = json!({ "tokens_per_second": 12.5, "api": { "key": ["<redacted>", 3] }, "path": "~/x" });
    assert_eq!(ann().json(value), clean);
}

#[test]
fn the_root_account_and_folder_say_nothing() {
    let redactor = Redactor::new(&variables(&[("USER", "root"), ("HOME", "/")]), Some("localhost"));
    let text = "root on localhost in /";
    assert_eq!(redactor.text(text), text);
}

/// Characters of passwords and tokens, without spaces and quotes.
const SECRET_PATTERN: &str = "[A-Za-z0-9+/=_.:@!$%^*(){}~?,;-]{8,40}";

proptest! {
    #[test]
    fn a_secret_of_the_environment_appears_nowhere(
        secret in "[^\u{0}<>]{8,40}", before in ".{0,20}", after in ".{0,20}", place in 0..4,
    ) {
        let redactor = Redactor::new(&variables(&[("SERVICE_API_KEY", &secret)]), None);
        let text = match place {
            0 => format!("{before}{secret}{after}"),
            1 => format!("/data/{secret}/{secret}.bin"),
            2 => format!("https://host/{before}?q={secret}&{after}"),
            _ => format!("{secret}{secret}"),
        };
        let clean = redactor.text(&text);
        prop_assert!(!clean.contains(&secret), "{clean:?}");
        let json = redactor.json(json!({ "a": [&text], secret.clone(): 1 }));
        prop_assert!(!json.to_string().contains(&Value::from(secret.clone()).to_string()), "{json}");
    }

    #[test]
    fn a_password_in_a_url_is_removed(
        user in "[a-z]{2,8}", secret in SECRET_PATTERN, scheme in "(https?|s3|postgres\\+ssl)", before in "[ a-z=,(]{0,9}",
    ) {
        let clean = Redactor::default().text(&format!("{before} {scheme}://{user}:{secret}@server/data"));
        prop_assert!(!clean.contains(&secret), "{clean:?}");
        prop_assert!(clean.contains("server/data"), "{clean:?}");
    }

    #[test]
    fn a_password_without_scheme_is_removed(user in "[a-z]{2,8}", secret in "[A-Za-z0-9+=_.!$%^*-]{8,40}") {
        let clean = Redactor::default().text(&format!("proxy {user}:{secret}@server:8080"));
        prop_assert!(!clean.contains(&secret), "{clean:?}");
    }

    #[test]
    fn the_value_of_a_secret_name_is_removed(
        start in "[a-z]{0,5}_?", mark in "(token|KEY|Secret|passwd|auth|credentials)", between in "(=| = |: )", quote in "[\"']?",
        secret in "[A-Za-z0-9+/=_.:!$%^*~?-]{8,40}",
    ) {
        let clean = Redactor::default().text(&format!("x {start}{mark}{between}{quote}{secret}{quote} end"));
        prop_assert!(!clean.contains(&secret), "{clean:?}");
        prop_assert!(clean.ends_with(" end"), "{clean:?}");
    }

    #[test]
    fn a_variable_with_a_secret_name_loses_its_value(
        name in "[A-Z]{0,5}(TOKEN|KEY|SECRET|PASS|AUTH)[A-Z]{0,5}",
        value in ".+",
    ) {
        prop_assert_eq!(Redactor::default().variable(&name, &value), "<redacted>");
    }

    #[test]
    fn names_are_removed_from_paths(
        user in "[a-z][a-z0-9]{3,9}", host in "[a-z][a-z0-9-]{3,9}",
        rest in "(/[A-Z]{1,5}){0,3}",
    ) {
        prop_assume!(user != host && user != "root" && !["user", "host", "redacted"].contains(&&*user));
        prop_assume!(!["user", "redacted", "localhost", "host", "home", "file"].contains(&&*host));
        prop_assume!(!["file", "home"].contains(&&*user));
        let home = format!("/home/{user}");
        let redactor = Redactor::new(&variables(&[("HOME", &home), ("USER", &user)]), Some(&host));
        prop_assert_eq!(redactor.text(&format!("{home}{rest}")), format!("~{rest}"));
        prop_assert_eq!(redactor.text(&format!("file://{host}{home}{rest}")), format!("file://<host>~{rest}"));
        prop_assert_eq!(redactor.text(&format!("{user}-{host}")), "<user>-<host>");
    }

    #[test]
    fn cleaning_twice_changes_nothing(text in ".{0,80}") {
        let once = ann().text(&text);
        prop_assert_eq!(ann().text(&once), once);
    }
}
