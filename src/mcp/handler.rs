//! The handler of a client's requests.

use std::sync::Arc;

use rmcp::model::{
    CallToolRequestParams, CallToolResponse, CompleteRequestParams, CompleteResult, CustomRequest, CustomResult,
    DiscoverResult, ErrorCode, ErrorData, GetPromptRequestParams, GetPromptResponse, GetPromptResult, Implementation,
    InitializeRequestParams, InitializeResult, ListPromptsResult, ListResourceTemplatesResult, ListResourcesResult,
    ListToolsResult, PaginatedRequestParams, Prompt, PromptMessage, ReadResourceRequestParams, ReadResourceResponse,
    Role, ServerCapabilities, ServerConfig, SubscribeRequestParams, SubscriptionFilter, Tool, UnsubscribeRequestParams,
};
use rmcp::service::{RequestContext, SubscriptionContext};
use rmcp::{RoleServer, ServerHandler};

use super::client::McpClient;
use super::error::answer;
use super::names::shown;
use super::resources::{self, ResourceUri};
use super::sessionless::Stateless;
use super::watching::{ResourceSubscriber, Watching};
use super::{calls, instructions, session_tools, tool_list};

/// The prompt that describes the workspace.
const WORKSPACE: &str = "workspace";

pub(super) struct Handler {
    own: Arc<McpClient>,
    stateless: Option<(Arc<Stateless>, Counted)>,
}

type Counted = Arc<()>;

impl Handler {
    pub(super) fn new(own: Arc<McpClient>, stateless: Option<(Arc<Stateless>, Counted)>) -> Self {
        Self { own, stateless }
    }

    fn client(&self, context: &RequestContext<RoleServer>) -> Result<Arc<McpClient>, ErrorData> {
        match &self.stateless {
            Some((stateless, _)) => stateless.client(context, &self.own),
            None => Ok(Arc::clone(&self.own)),
        }
    }
}

/// Returns true if the client has a connection for notifications.
fn is_connected(context: &RequestContext<RoleServer>) -> bool {
    context.protocol_version().is_none_or(|version| version.has_initialize())
}

impl ServerHandler for Handler {
    fn get_info(&self) -> ServerConfig {
        let capabilities = ServerCapabilities::builder()
            .enable_tools()
            .enable_tool_list_changed()
            .enable_prompts()
            .enable_completions()
            .enable_resources()
            .enable_resources_subscribe()
            .enable_resources_list_changed()
            .build();
        let program = Implementation::new("foldspace", env!("CARGO_PKG_VERSION")).with_title("foldspace");
        ServerConfig::new(capabilities).with_server_info(program).with_instructions(instructions::of(&self.own))
    }

    async fn initialize(
        &self,
        request: InitializeRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<InitializeResult, ErrorData> {
        // The instructions depend on the requested session.
        self.client(&context)?;
        context.peer.set_peer_info(request.clone());
        self.negotiate_initialize(&request)
    }

    async fn discover(&self, context: RequestContext<RoleServer>) -> Result<DiscoverResult, ErrorData> {
        let mut told = self.get_info();
        told.instructions = Some(instructions::of(&*self.client(&context)?));
        Ok(DiscoverResult::from_server_info(self.supported_protocol_versions().into_owned(), told))
    }

    async fn list_tools(
        &self,
        _: Option<PaginatedRequestParams>,
        context: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, ErrorData> {
        let client = self.client(&context)?;
        if is_connected(&context) {
            client.tell_of_tools(&context.peer);
        }
        Ok(ListToolsResult::with_all_items(tool_list::tools(&client)))
    }

    fn get_tool(&self, name: &str) -> Option<Tool> {
        tool_list::tool(&self.own, name)
    }

    async fn call_tool(
        &self,
        request: CallToolRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        let client = self.client(&context)?;
        if tool_list::has(&client, &request.name) {
            return calls::call(&client, request, &context).await;
        }
        match session_tools::call(&client, &request, &context).await {
            Some(result) => Ok(result.into()),
            None => {
                let known: Vec<_> = tool_list::tools(&client).into_iter().map(|tool| tool.name).collect();
                let what = format!("tool {} not found; available: {}", shown(&request.name, 80), known.join(", "));
                Err(ErrorData::invalid_params(what, None))
            }
        }
    }

    async fn list_resources(
        &self,
        request: Option<PaginatedRequestParams>,
        context: RequestContext<RoleServer>,
    ) -> Result<ListResourcesResult, ErrorData> {
        let client = self.client(&context)?;
        if is_connected(&context) {
            let told = ResourceSubscriber::Peer(context.peer.clone());
            client.watching.has_listed(client.known().as_ref(), &told).map_err(|error| answer(&error, None))?;
        }
        resources::list(&client, request).await
    }

    async fn list_resource_templates(
        &self,
        _: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> Result<ListResourceTemplatesResult, ErrorData> {
        Ok(resources::templates())
    }

    async fn read_resource(
        &self,
        request: ReadResourceRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<ReadResourceResponse, ErrorData> {
        Ok(resources::read(&*self.client(&context)?, &request.uri, &context).await?.into())
    }

    async fn complete(
        &self,
        request: CompleteRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<CompleteResult, ErrorData> {
        Ok(CompleteResult::new(resources::complete(&*self.client(&context)?, &request).await?))
    }

    async fn subscribe(
        &self,
        request: SubscribeRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<(), ErrorData> {
        let client = self.client(&context)?;
        let told = ResourceSubscriber::Peer(context.peer.clone());
        watch(&client, &client.watching, &request.uri, &told, &context).await
    }

    async fn unsubscribe(
        &self,
        request: UnsubscribeRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<(), ErrorData> {
        self.client(&context)?.watching.forget(&request.uri);
        Ok(())
    }

    fn accepted_subscription_filter(&self, requested: &SubscriptionFilter) -> Option<SubscriptionFilter> {
        let mut accepted = requested.clone();
        accepted.resource_subscriptions = requested
            .resource_subscriptions
            .as_ref()
            .map(|uris| uris.iter().filter(|uri| ResourceUri::parse(uri).is_ok()).cloned().collect());
        Some(accepted)
    }

    async fn listen(&self, context: SubscriptionContext) -> Result<(), ErrorData> {
        let request = context.request_context();
        let client = self.client(request)?;
        let (watching, told) = (Watching::default(), ResourceSubscriber::Sink(context.sink().clone()));
        for uri in context.accepted().resource_subscriptions.iter().flatten() {
            watch(&client, &watching, uri, &told, request).await?;
        }
        let watches_list = context.accepted().resources_list_changed == Some(true);
        let watches_tools = context.accepted().tools_list_changed == Some(true);
        let mut tool_changes = client.hub().tool_changes();
        loop {
            let mut arrived = std::pin::pin!(client.arrived.notified());
            // Enabled before the check for a session, so that no arrival is missed.
            arrived.as_mut().enable();
            let known = client.known();
            if watches_list {
                watching.has_listed(known.as_ref(), &told).map_err(|error| answer(&error, None))?;
            }
            tokio::select! {
                () = context.cancelled() => return Ok(()),
                () = client.gone.cancelled() => return Ok(()),
                Ok(()) = tool_changes.changed(), if watches_tools => {
                    drop(context.sink().notify_tool_list_changed().await);
                }
                // A new session has different resources.
                () = arrived, if watches_list && known.is_none() => {
                    drop(context.sink().notify_resource_list_changed().await);
                }
            }
        }
    }

    async fn list_prompts(
        &self,
        _: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> Result<ListPromptsResult, ErrorData> {
        let words = "The kind of workspace, its tools and limits, and its mounts";
        let prompt = Prompt::new(WORKSPACE, Some(words), None).with_title("The workspace");
        Ok(ListPromptsResult::with_all_items(vec![prompt]))
    }

    async fn get_prompt(
        &self,
        request: GetPromptRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<GetPromptResponse, ErrorData> {
        if request.name != WORKSPACE {
            let what = format!("unknown prompt {}; the only prompt is {WORKSPACE}", shown(&request.name, 80));
            return Err(ErrorData::invalid_params(what, None));
        }
        let client = self.client(&context)?;
        let joined = client.joined(&context).await.map_err(|error| answer(&error, None))?;
        let offered = tool_list::tools(&client).into_iter().map(|tool| tool.name.into_owned()).collect();
        let section = joined.open.section(Some(offered)).await;
        let section = section.map_err(|error| ErrorData::internal_error(error.to_string(), None))?;
        let message = PromptMessage::new_text(Role::User, section);
        Ok(GetPromptResult::new(vec![message]).with_description("The current workspace").into())
    }

    async fn on_custom_request(
        &self,
        request: CustomRequest,
        context: RequestContext<RoleServer>,
    ) -> Result<CustomResult, ErrorData> {
        let method = request.method.as_str();
        let is_gone = GONE.contains(&method) && !is_connected(&context);
        if KNOWN.contains(&method) && !is_gone {
            let what = format!("invalid parameters for {method}");
            return Err(ErrorData::invalid_params(what, None));
        }
        Err(ErrorData::new(ErrorCode::METHOD_NOT_FOUND, format!("unknown method {}", shown(method, 80)), None))
    }
}

/// Methods that protocol versions without connections no longer have.
const GONE: [&str; 5] = ["initialize", "ping", "logging/setLevel", "resources/subscribe", "resources/unsubscribe"];

/// The supported methods. If a request for one of them was not recognized, its parameters are invalid.
const KNOWN: [&str; 15] = [
    "initialize",
    "ping",
    "server/discover",
    "completion/complete",
    "logging/setLevel",
    "prompts/get",
    "prompts/list",
    "resources/list",
    "resources/read",
    "resources/subscribe",
    "resources/templates/list",
    "resources/unsubscribe",
    "subscriptions/listen",
    "tools/call",
    "tools/list",
];

async fn watch(
    client: &McpClient,
    watching: &Watching,
    uri: &str,
    told: &ResourceSubscriber,
    context: &RequestContext<RoleServer>,
) -> Result<(), ErrorData> {
    let (session, address) = resources::find(client, uri, context).await?;
    watching.watch(&session, &address, uri, told).await.map_err(|error| answer(&error, Some(uri)))
}
