//! The certificate authority of a container, and the authorities that this machine trusts.

use std::collections::HashMap;
use std::error::Error;
use std::sync::{Arc, Mutex, PoisonError};

use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair, KeyUsagePurpose};
use rustls::crypto::{CryptoProvider, ring};
use rustls::pki_types::{CertificateDer, PrivatePkcs8KeyDer};
use rustls::{ClientConfig, RootCertStore, ServerConfig};

/// The most cached certificates of hosts.
const HOSTS_MAX: usize = 1000;
/// HTTP/2 is not recorded, so it is not offered.
const ALPN: &[u8] = b"http/1.1";

/// A certificate authority. Its key is in memory only.
pub(crate) struct Authority {
    issuer: Issuer<'static, KeyPair>,
    pem: String,
    key: KeyPair,
    servers: Mutex<HashMap<String, Arc<ServerConfig>>>,
    client: Arc<ClientConfig>,
    trusted: Vec<CertificateDer<'static>>,
}

type Outcome<T> = Result<T, Box<dyn Error + Send + Sync>>;

impl Authority {
    /// Makes an authority for a container. It verifies hosts with these certificates.
    pub(crate) fn trusting(trusted: Vec<CertificateDer<'static>>) -> Outcome<Self> {
        let mut params = CertificateParams::default();
        params.distinguished_name.push(DnType::CommonName, "foldspace");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        valid(&mut params);
        let key = KeyPair::generate()?;
        let pem = params.self_signed(&key)?.pem();
        let mut roots = RootCertStore::empty();
        roots.add_parsable_certificates(trusted.iter().cloned());
        let client = ClientConfig::builder_with_provider(provider()).with_safe_default_protocol_versions()?;
        let mut client = client.with_root_certificates(roots).with_no_client_auth();
        client.alpn_protocols = vec![ALPN.to_owned()];
        let (issuer, servers) = (Issuer::new(params, key), Mutex::default());
        Ok(Self { issuer, pem, key: KeyPair::generate()?, servers, client: Arc::new(client), trusted })
    }

    /// Returns its certificate and the certificates that this machine trusts, as PEM.
    pub(crate) fn bundle(&self) -> String {
        let trusted = self.trusted.iter().map(|one| pem::Pem::new("CERTIFICATE", one.as_ref()).to_string());
        std::iter::once(self.pem.clone()).chain(trusted).collect()
    }

    pub(crate) fn client(&self) -> Arc<ClientConfig> {
        Arc::clone(&self.client)
    }

    /// Returns the configuration of a server with a certificate for that host.
    pub(crate) fn server(&self, host: &str) -> Outcome<Arc<ServerConfig>> {
        let mut servers = self.servers.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = servers.get(host) {
            return Ok(Arc::clone(known));
        }
        let mut params = CertificateParams::new([host.to_owned()])?;
        params.distinguished_name.push(DnType::CommonName, host.chars().take(64).collect::<String>());
        params.use_authority_key_identifier_extension = true;
        valid(&mut params);
        let certificate = params.signed_by(&self.key, &self.issuer)?;
        let key = PrivatePkcs8KeyDer::from(self.key.serialize_der());
        let config = ServerConfig::builder_with_provider(provider()).with_safe_default_protocol_versions()?;
        let mut config = config.with_no_client_auth().with_single_cert(vec![certificate.der().clone()], key.into())?;
        config.alpn_protocols = vec![ALPN.to_owned()];
        if servers.len() >= HOSTS_MAX {
            servers.clear();
        }
        Ok(Arc::clone(servers.entry(host.to_owned()).or_insert(Arc::new(config))))
    }
}

/// Returns the certificates of the authorities that this machine trusts.
pub(crate) fn trusted_here() -> Vec<CertificateDer<'static>> {
    let found = rustls_native_certs::load_native_certs();
    for error in found.errors {
        tracing::warn!(%error, "certificates of this machine could not be read");
    }
    found.certs
}

/// Sets a time of validity that does not depend on the container's clock.
fn valid(params: &mut CertificateParams) {
    params.not_before = rcgen::date_time_ymd(2020, 1, 1);
    params.not_after = rcgen::date_time_ymd(2049, 12, 31);
}

fn provider() -> Arc<CryptoProvider> {
    Arc::new(ring::default_provider())
}
