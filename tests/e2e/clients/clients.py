"""Typical agent calls with the packages of OpenAI, Anthropic and LiteLLM: python clients.py URL MODEL PART."""

import json
import sys

import anthropic
import openai

URL, MODEL, PART = sys.argv[1:]
PARAMETERS = {
    "type": "object",
    "properties": {"city": {"type": "string"}, "days": {"type": "integer", "minimum": 2, "maximum": 4}},
    "required": ["city", "days"],
    "additionalProperties": False,
}
FUNCTION = {"name": "weather", "description": "The weather", "parameters": PARAMETERS}


def check(arguments):
    """Arguments of a call have to fit the schema."""
    assert set(arguments) == {"city", "days"}, arguments
    assert isinstance(arguments["city"], str) and arguments["days"] in (2, 3, 4), arguments


client = openai.OpenAI(base_url=URL + "/v1", api_key="-", max_retries=0, timeout=60)
claude = anthropic.Anthropic(base_url=URL, api_key="-", max_retries=0, timeout=60)


def chat():
    messages = [{"role": "user", "content": "hi"}]
    whole = client.chat.completions.create(
        model=MODEL, messages=messages, n=2, max_tokens=8, logprobs=True, top_logprobs=2
    )
    assert [choice.index for choice in whole.choices] == [0, 1]
    assert whole.choices[0].message.content != whole.choices[1].message.content
    assert len(whole.choices[0].logprobs.content[0].top_logprobs) == 2
    assert whole.usage.completion_tokens == 16, whole.usage
    options = {"stream": True, "stream_options": {"include_usage": True}}
    chunks = list(client.chat.completions.create(model=MODEL, messages=messages, max_tokens=8, **options))
    text = "".join(choice.delta.content or "" for chunk in chunks for choice in chunk.choices)
    assert text and chunks[-1].usage.completion_tokens == 8, chunks


def agent():
    """Continues until the model has no more calls."""
    tools = [{"type": "function", "function": FUNCTION}]
    messages = [{"role": "user", "content": "What is the weather?"}]
    for turn in range(8):
        answer = client.chat.completions.create(
            model=MODEL, messages=messages, tools=tools, tool_choice="auto" if turn else "required"
        )
        message = answer.choices[0].message
        messages.append(message.model_dump(exclude_none=True))
        if not message.tool_calls:
            assert message.content and turn > 0
            return
        assert answer.choices[0].finish_reason == "tool_calls"
        for call in message.tool_calls:
            check(json.loads(call.function.arguments))
            messages.append({"role": "tool", "tool_call_id": call.id, "content": "sunny"})
    raise AssertionError("the agent does not end")


def responses():
    tools = [{"type": "function", "strict": True, **FUNCTION}, {"type": "web_search"}]
    brief = {"model": MODEL, "instructions": "be brief, " * 20}
    answer = client.responses.create(input="hi", max_output_tokens=12, **brief)
    assert answer.status in ("completed", "incomplete") and answer.output_text, answer
    assert answer.usage.output_tokens <= 12 and answer.usage.input_tokens > 0
    more = client.responses.create(input="and?", previous_response_id=answer.id, **brief)
    assert more.usage.input_tokens > answer.usage.input_tokens, "it continues"
    assert more.usage.input_tokens_details.cached_tokens > 0, "in the same program, at the same engine"
    for gone in ("resp_unknown", client.responses.create(model=MODEL, input="hi", store=False).id):
        try:
            client.responses.create(model=MODEL, input="and?", previous_response_id=gone)
            raise AssertionError("it is not held")
        except openai.BadRequestError as error:
            assert error.code == "previous_response_not_found" and "input" in error.message, error
    stream_and_calls(tools)
    parsed = client.responses.create(model=MODEL, input="hi", tools=tools, tool_choice="none")
    assert [item.type for item in parsed.output] == ["message"]


def stream_and_calls(tools):
    items, previous, choice = "What is the weather?", None, "required"
    for _ in range(8):
        kinds = []
        with client.responses.stream(
            model=MODEL, input=items, tools=tools, tool_choice=choice, previous_response_id=previous
        ) as stream:
            numbers = []
            for event in stream:
                kinds.append(event.type)
                numbers.append(event.sequence_number)
            final = stream.get_final_response()
        assert numbers == list(range(len(numbers))), numbers
        assert kinds[:2] == ["response.created", "response.in_progress"], kinds
        assert kinds[-1] == "response.completed" and final.usage.output_tokens > 0
        calls = [item for item in final.output if item.type == "function_call"]
        if not calls:
            assert final.output_text and previous
            return
        assert "response.function_call_arguments.done" in kinds
        for call in calls:
            check(json.loads(call.arguments))
        items = [{"type": "function_call_output", "call_id": call.call_id, "output": "sunny"} for call in calls]
        previous, choice = final.id, "auto"
    raise AssertionError("the agent does not end")


def messages():
    tools = [{"name": "weather", "description": "The weather", "input_schema": PARAMETERS}]
    said = [{"role": "user", "content": "What is the weather?"}]
    count = claude.messages.count_tokens(model=MODEL, messages=said, tools=tools)
    choice = {"type": "any"}
    for _ in range(8):
        with claude.messages.stream(
            model=MODEL, max_tokens=400, messages=said, tools=tools, tool_choice=choice
        ) as stream:
            answer = stream.get_final_message()
        if choice["type"] == "any":
            usage = answer.usage
            assert count.input_tokens == usage.input_tokens + usage.cache_read_input_tokens, (count, usage)
        said.append({"role": "assistant", "content": [block.model_dump() for block in answer.content]})
        calls = [block for block in answer.content if block.type == "tool_use"]
        if not calls:
            assert answer.stop_reason in ("end_turn", "max_tokens") and answer.content[0].text
            break
        assert answer.stop_reason == "tool_use"
        for call in calls:
            check(call.input)
        results = [{"type": "tool_result", "tool_use_id": call.id, "content": "sunny"} for call in calls]
        said.append({"role": "user", "content": results})
        choice = {"type": "auto"}
    else:
        raise AssertionError("the agent does not end")
    whole = claude.messages.create(model=MODEL, max_tokens=8, messages=[{"role": "user", "content": "hi"}])
    assert whole.stop_reason == "max_tokens" and whole.usage.output_tokens == 8


def litellm_too():
    import litellm

    litellm.telemetry = False
    base = {"api_base": URL + "/v1", "api_key": "-"}
    hello = [{"role": "user", "content": "hi"}]
    whole = litellm.completion(model="openai/" + MODEL, messages=hello, max_tokens=4, **base)
    assert whole.choices[0].message.content and whole.usage.completion_tokens == 4
    stream = litellm.completion(model="openai/" + MODEL, messages=hello, max_tokens=4, stream=True, **base)
    assert "".join(chunk.choices[0].delta.content or "" for chunk in stream)
    answer = litellm.responses(model="openai/" + MODEL, input="hi", **base)
    assert answer.status == "completed" and answer.output, answer
    whole = litellm.completion(
        model="anthropic/" + MODEL, messages=hello, max_tokens=4, api_base=URL, api_key="-"
    )
    assert whole.choices[0].message.content


for step in [responses] if PART == "responses" else [chat, agent, responses, messages, litellm_too]:
    step()
print("ALL PASSED")
