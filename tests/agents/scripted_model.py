"""A model server on loopback that follows a script.

It speaks Anthropic Messages, OpenAI Responses, OpenAI Chat Completions and Gemini's generateContent, streaming and
not, with Python's standard library alone. It keeps no state: a request belongs to the script whose marker stands first
in its user texts, and the number of turns that called tools says which step is due. So subagents have scripts of their
own.

A script is a list of steps: {"text": ..., "calls": [{"name": ..., "args": {...}}, ...]}. A call of a custom tool has
"custom" and "input" instead, and may have a "namespace".
"""

import json
import threading
import time
import uuid
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

USAGE = {"input_tokens": 10, "output_tokens": 5}


def serve(scripts):
    """Serves the scripts, by their markers, and returns the port."""
    handler = type("ScriptedModel", (Model,), {"scripts": scripts})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    # Agents end their connections as they please.
    server.handle_error = lambda *_: None
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return server.server_address[1]


def words(value):
    """Returns all texts in a message's content."""
    if isinstance(value, str):
        return value
    if isinstance(value, list):
        return "\n".join(words(item) for item in value)
    if isinstance(value, dict):
        return "\n".join(words(value[key]) for key in ("text", "content", "parts", "input_text") if key in value)
    return ""


def fresh(prefix):
    return prefix + uuid.uuid4().hex[:20]


class Model(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    scripts = {}

    def log_message(self, *_):
        pass

    def step(self, users, turns, tools):
        """Returns the step that is due. A request without tools is no turn of the agent's."""
        said = "\n".join(words(user) for user in users)
        found = sorted((said.find(marker), marker) for marker in self.scripts if marker in said)
        if not found or not tools:
            return {"text": "ok"}
        steps = self.scripts[found[0][1]]
        return steps[turns] if turns < len(steps) else {"text": "Done."}

    def answer(self, document, code=200):
        body = json.dumps(document).encode()
        self.send_response(code)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def stream(self, frames):
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        self.send_header("connection", "close")
        self.end_headers()
        for event, data in frames:
            name = f"event: {event}\n" if event else ""
            data = data if isinstance(data, str) else json.dumps(data)
            self.wfile.write(f"{name}data: {data}\n\n".encode())
            self.wfile.flush()
        self.close_connection = True

    def typed_stream(self, frames):
        self.stream((frame["type"], frame) for frame in frames)

    def do_HEAD(self):
        self.answer({})

    def do_GET(self):
        self.answer({"object": "list", "data": [{"id": "fake", "object": "model"}], "models": []})

    def body(self):
        if self.headers.get("transfer-encoding", "").lower() != "chunked":
            return self.rfile.read(int(self.headers.get("content-length") or 0))
        raw = b""
        while size := int(self.rfile.readline().strip() or b"0", 16):
            raw += self.rfile.read(size)
            self.rfile.readline()
        self.rfile.readline()
        return raw

    def do_POST(self):
        try:
            request = json.loads(self.body() or b"{}")
        except ValueError:
            return self.answer({}, 400)
        path = self.path.split("?")[0]
        try:
            if path.endswith("/messages"):
                self.anthropic(request)
            elif path.endswith("/responses"):
                self.openai_responses(request)
            elif path.endswith("/chat/completions"):
                self.openai_chat(request)
            elif "enerateContent" in path:
                self.gemini(request, ":stream" in path)
            else:
                self.answer({"input_tokens": 10, "totalTokens": 10})
        except (BrokenPipeError, ConnectionResetError):
            pass

    def anthropic(self, request):
        messages = request.get("messages", [])
        users = [message.get("content") for message in messages if message.get("role") == "user"]
        answers = [message["content"] for message in messages if message.get("role") == "assistant"]
        uses = [content for content in answers if isinstance(content, list)]
        turns = sum(any(part.get("type") == "tool_use" for part in content) for content in uses)
        step = self.step(users, turns, request.get("tools"))
        blocks = [{"type": "text", "text": step["text"]}] if "text" in step else []
        for call in step.get("calls", []):
            blocks.append({"type": "tool_use", "id": fresh("toolu_"), "name": call["name"], "input": call["args"]})
        stop = "tool_use" if "calls" in step else "end_turn"
        message = {"id": fresh("msg_"), "type": "message", "role": "assistant", "model": request.get("model"),
                   "content": blocks, "stop_reason": stop, "stop_sequence": None, "usage": USAGE}
        if not request.get("stream"):
            return self.answer(message)
        frames = [{"type": "message_start", "message": {**message, "content": [], "stop_reason": None}}]
        for index, block in enumerate(blocks):
            if block["type"] == "text":
                empty, delta = {**block, "text": ""}, {"type": "text_delta", "text": block["text"]}
            else:
                empty = {**block, "input": {}}
                delta = {"type": "input_json_delta", "partial_json": json.dumps(block["input"])}
            frames += [{"type": "content_block_start", "index": index, "content_block": empty},
                       {"type": "content_block_delta", "index": index, "delta": delta},
                       {"type": "content_block_stop", "index": index}]
        end = {"stop_reason": stop, "stop_sequence": None}
        frames += [{"type": "message_delta", "delta": end, "usage": USAGE}, {"type": "message_stop"}]
        self.typed_stream(frames)

    def openai_responses(self, request):
        items = request.get("input", [])
        if isinstance(items, str):
            items = [{"type": "message", "role": "user", "content": items}]
        users = [item.get("content") for item in items if item.get("role") == "user"]
        turns, in_calls = 0, False
        for item in items:
            kind = item.get("type", "")
            is_call = kind in ("function_call", "custom_tool_call", "local_shell_call")
            turns += is_call and not in_calls
            in_calls = is_call or in_calls and kind == "reasoning"
        step = self.step(users, turns, request.get("tools"))
        output = []
        if "text" in step:
            content = [{"type": "output_text", "text": step["text"], "annotations": []}]
            output.append({"type": "message", "id": fresh("msg_"), "role": "assistant", "status": "completed",
                           "content": content})
        for call in step.get("calls", []):
            item = {"id": fresh("fc_"), "call_id": fresh("call_"), "status": "completed"}
            if "custom" in call:
                item |= {"type": "custom_tool_call", "name": call["custom"], "input": call["input"]}
            else:
                item |= {"type": "function_call", "name": call["name"], "arguments": json.dumps(call["args"])}
            if "namespace" in call:
                item["namespace"] = call["namespace"]
            output.append(item)
        usage = {**USAGE, "input_tokens_details": {"cached_tokens": 0},
                 "output_tokens_details": {"reasoning_tokens": 0}, "total_tokens": 15}
        response = {"id": fresh("resp_"), "object": "response", "created_at": int(time.time()),
                    "status": "completed", "model": request.get("model"), "output": output, "usage": usage}
        if not request.get("stream"):
            return self.answer(response)
        frames = [{"type": "response.created", "response": {**response, "status": "in_progress", "output": []}}]
        for index, item in enumerate(output):
            begun = {**item, "status": "in_progress"}
            frames.append({"type": "response.output_item.added", "output_index": index, "item": begun})
            if item["type"] == "message":
                frames.append({"type": "response.output_text.delta", "item_id": item["id"], "output_index": index,
                               "content_index": 0, "delta": item["content"][0]["text"]})
            frames.append({"type": "response.output_item.done", "output_index": index, "item": item})
        frames.append({"type": "response.completed", "response": response})
        self.typed_stream(frames)

    def openai_chat(self, request):
        messages = request.get("messages", [])
        users = [message.get("content") for message in messages if message.get("role") == "user"]
        turns = sum(message.get("role") == "assistant" and bool(message.get("tool_calls")) for message in messages)
        step = self.step(users, turns, request.get("tools"))
        calls = []
        for index, call in enumerate(step.get("calls", [])):
            function = {"name": call["name"], "arguments": json.dumps(call["args"])}
            calls.append({"index": index, "id": fresh("call_"), "type": "function", "function": function})
        base = {"id": fresh("chatcmpl-"), "created": int(time.time()), "model": request.get("model") or "fake"}
        usage = {"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 15}
        end = "tool_calls" if calls else "stop"
        if not request.get("stream"):
            message = {"role": "assistant", "content": step.get("text")}
            if calls:
                message["tool_calls"] = calls
            choices = [{"index": 0, "message": message, "finish_reason": end}]
            return self.answer({**base, "object": "chat.completion", "choices": choices, "usage": usage})

        def chunk(delta, reason=None):
            choices = [{"index": 0, "delta": delta, "finish_reason": reason}]
            return None, {**base, "object": "chat.completion.chunk", "choices": choices}

        frames = [chunk({"role": "assistant", "content": step.get("text", "")})]
        if calls:
            frames.append(chunk({"tool_calls": calls}))
        last = {**base, "object": "chat.completion.chunk", "choices": [], "usage": usage}
        self.stream([*frames, chunk({}, end), (None, last), (None, "[DONE]")])

    def gemini(self, request, is_stream):
        contents = request.get("contents", [])
        users = [content for content in contents if content.get("role") == "user"]
        answers = [content for content in contents if content.get("role") == "model"]
        turns = sum(any("functionCall" in part for part in answer.get("parts", [])) for answer in answers)
        tools = [tool for tools in request.get("tools", []) for tool in tools.get("functionDeclarations", [])]
        step = self.step(users, turns, tools)
        if not tools and request.get("generationConfig", {}).get("responseMimeType") == "application/json":
            step = {"text": json.dumps({"reasoning": "x", "next_speaker": "user", "model_choice": "flash"})}
        parts = [{"text": step["text"]}] if "text" in step else []
        parts += [{"functionCall": {"name": call["name"], "args": call["args"]}} for call in step.get("calls", [])]
        candidate = {"content": {"role": "model", "parts": parts}, "finishReason": "STOP", "index": 0}
        usage = {"promptTokenCount": 10, "candidatesTokenCount": 5, "totalTokenCount": 15}
        document = {"candidates": [candidate], "usageMetadata": usage, "modelVersion": "fake"}
        self.stream([(None, document)]) if is_stream else self.answer(document)
