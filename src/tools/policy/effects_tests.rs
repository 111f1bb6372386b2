//! Effects of known commands, and their outcomes.

use super::effects::{effects_of, settle};
use crate::backends::ShellCommand;
use crate::engine::event::{EffectOutcome, ExternalEffect};

fn found(text: &str) -> Vec<String> {
    let words = |effect: &ExternalEffect| format!("{} | {}", effect.what, effect.target);
    effects_of(&ShellCommand::shell(text)).iter().map(words).collect()
}

#[test]
fn effects_of_known_commands_are_found() {
    for (text, effects) in [
        ("git push", &["git push | "][..]),
        ("git -C sub push -u origin main", &["git push | origin main"]),
        (
            "cd a && git add . && git commit -m 'git push' && git push --force origin HEAD:x",
            &["git push | origin HEAD:x"],
        ),
        ("sh -c 'git push origin a; git push origin b'", &["git push | origin a", "git push | origin b"]),
        ("gh pr create --title x", &["gh pr create | "]),
        ("gh -R a/b pr merge 12 --squash", &["gh pr merge | 12"]),
        ("gh api -X PATCH repos/a/b", &["gh api PATCH | repos/a/b"]),
        ("gh api repos/a/b/issues -f title=x", &["gh api POST | repos/a/b/issues"]),
        ("npm publish --access public", &["npm publish | "]),
        ("yarn npm publish", &["yarn npm publish | "]),
        ("twine upload dist/*", &["twine upload | dist/*"]),
        ("cargo +nightly publish", &["cargo publish | "]),
        ("docker push example.com/a:1", &["docker push | example.com/a:1"]),
        ("docker buildx build --push .", &["docker build --push | "]),
        ("docker image push a/b", &["docker image push | a/b"]),
        ("git lfs push origin main", &["git lfs push | "]),
        ("git send-email a.patch", &["git send-email | "]),
        ("uv run twine upload dist/*", &["twine upload | dist/*"]),
        ("npx npm publish --otp 123456", &["npm publish | "]),
        ("npm -w packages/a publish", &["npm publish | "]),
        ("yarn workspace a publish", &["yarn workspace publish | "]),
        ("mvn -B clean deploy", &["mvn deploy | "]),
        ("./gradlew :lib:publish", &["gradlew :lib:publish | "]),
        ("vercel --prod", &["vercel --prod | "]),
        ("hg push", &["hg push | "]),
        ("gsutil cp a gs://bucket/a", &["gsutil cp | gs://bucket/a"]),
        ("curl -sX POST https://example.com", &["curl POST | https://example.com"]),
        ("curl -sd a=b https://example.com", &["curl POST | https://example.com"]),
        ("curl -dfoo https://example.com", &["curl POST | https://example.com"]),
        ("http example.com/a name=v", &["http POST | example.com/a"]),
        ("kubectl rollout restart deploy/web", &["kubectl rollout | restart deploy/web"]),
        ("ssh -n -i key -p 22 example.com rm a", &["ssh | example.com"]),
        ("sh <<'X'\ngit push\nX", &["git push | "]),
        ("curl -X POST https://example.com/a?token=b", &["curl POST | https://example.com/a"]),
        ("curl -XDELETE example.com/a", &["curl DELETE | example.com/a"]),
        ("curl --data a=b https://example.com", &["curl POST | https://example.com"]),
        ("wget --post-data=a https://example.com/", &["wget POST | https://example.com/"]),
        ("http POST example.com/x a=b", &["http POST | example.com/x"]),
        ("aws s3 cp a s3://bucket/a", &["aws s3 cp | a s3://bucket/a"]),
        ("aws --region x ec2 terminate-instances --instance-ids i", &["aws ec2 terminate-instances | "]),
        ("kubectl -n prod apply -f a.yaml", &["kubectl apply | a.yaml"]),
        ("terraform apply -auto-approve", &["terraform apply | "]),
        ("gcloud run deploy web --image x", &["gcloud run deploy | web"]),
        ("rsync -a out/ me@example.com:www/", &["rsync | me@example.com:www/"]),
        ("ssh example.com rm a", &["ssh | example.com"]),
    ] {
        assert_eq!(found(text), effects, "{text}");
    }
}

#[test]
fn targets_have_no_secrets() {
    for (text, effects) in [
        ("sudo -u me timeout 5 git push https://me:secret@example.com/a.git", "git push | https://example.com/a.git"),
        ("git push origin help -o ci.variable=SECRET", "git push | origin help"),
        ("python3 -m twine upload -u me -p SECRET dist/*", "twine upload | "),
        ("gh secret set TOKEN --body SECRET", "gh secret set | TOKEN"),
        ("helm upgrade a b --set password=SECRET", "helm upgrade | a b"),
        ("aws ssm put-parameter --name x --value SECRET", "aws ssm put-parameter | "),
        ("curl -X POST example.com -H 'Authorization: Bearer SECRET'", "curl POST | example.com"),
        ("curl -u me:p.w/SECRET -d a https://example.com/", "curl POST | https://example.com/"),
        (
            r#"curl -d '{"cb":"http://localhost/","token":"SECRET"}' https://example.com/"#,
            "curl POST | https://example.com/",
        ),
    ] {
        assert_eq!(found(text), [effects], "{text}");
    }
}

#[test]
fn commands_that_read_have_no_effects() {
    for text in [
        "git push --dry-run",
        "git push -n",
        "git pull",
        "grep -r 'git push' .",
        "cargo test publish",
        "gh pr list",
        "gh api repos/a/b",
        "npm run publish-docs",
        "curl https://example.com -o a",
        "curl -X GET https://example.com",
        "curl -d a http://localhost:8000/x",
        "aws s3 cp s3://bucket/a a",
        "aws ec2 describe-instances",
        "kubectl get pods",
        "kubectl apply --dry-run=client -f a.yaml",
        "scp example.com:a b",
        "gh run list",
        "gh issue list --search create",
        "gh api graphql -f query='{ viewer { login } }'",
        "gcloud config set project a",
        "kubectl rollout status deploy/web",
        "aws s3 cp s3://bucket/a -",
        "aws --query X s3 ls",
        "wget -T 5 https://example.com",
        "curl -G -d a=b https://example.com",
        "http -F https://example.com",
        "rsync -an a example.com:b",
        "npm run publish",
    ] {
        assert!(found(text).is_empty(), "{text}");
    }
}

#[test]
fn outcome_is_claimed_only_where_the_exit_code_proves_it() {
    use EffectOutcome::{Done, Failed, Unknown};
    for (text, exit_code, outcome) in [
        ("git push", 0, Done),
        ("git push", 1, Failed),
        ("make && git push", 0, Done),
        ("make && git push && make clean", 0, Done),
        ("make; git push", 0, Done),
        ("git push; make", 0, Unknown),
        ("git push || true", 0, Unknown),
        ("git push 2>&1 | tail", 0, Unknown),
        ("git push && make", 1, Unknown),
        ("timeout 60 git push", 0, Done),
        ("timeout 60 git push", 124, Unknown),
        ("git push origin a b", 1, Unknown),
        ("git push; git status", 0, Unknown),
        ("git push; echo git", 0, Unknown),
        ("git push &", 0, Unknown),
        ("! git push", 0, Unknown),
        ("if false; then git push; fi", 0, Unknown),
        ("for r in ; do git push $r; done", 0, Unknown),
        ("deploy() { git push; }", 0, Unknown),
        ("sh -c 'git push | cat'", 0, Unknown),
        ("sh -c 'git push; exit 1'", 1, Unknown),
        ("nohup git push &", 0, Unknown),
        ("terraform apply", 1, Unknown),
        ("cargo publish", 127, Failed),
        ("curl -d a https://example.com", 0, Done),
        ("curl -d a https://example.com", 6, Failed),
        ("curl -d a https://example.com", 7, Unknown),
        ("curl -d a https://example.com", 56, Unknown),
    ] {
        let command = ShellCommand::shell(text);
        let mut effects = effects_of(&command);
        settle(&mut effects, &command.command, Some(exit_code));
        assert_eq!(effects[0].outcome, outcome, "{text}: {exit_code}");
    }
}
