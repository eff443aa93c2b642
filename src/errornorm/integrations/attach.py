"""One line for any Hugging Face model: `model(**batch).loss` becomes the objective, in whatever trainer.

Hooks on public accessors do all of it. The model's pre-hook takes the labels away; the head's pre-hook keeps the
hidden states and lets a single position through, so no (batch, time, vocabulary) logits exist; the head's hook
computes the fused loss, where a sharded weight is gathered; the model's hook puts the loss into the outputs. The one
position that did go through the head is the self-check: its true logits must be what we believe them to be.

Shapes: B sequences, T positions, D hidden size, V vocabulary.
"""

from __future__ import annotations

import inspect
import logging
from dataclasses import replace
from types import TracebackType
from typing import Any, Literal

import torch
from torch import Tensor, nn

from .. import compiler
from ..loss import LossTerms, RobustLoss
from ..objectives import Objective, require_choice
from .heads import look_at, patched_by
from .jobs import COLUMNS, IGNORED, SOURCE, Job, part_of_step, share_of_step, shared, with_loss
from .telemetry import Telemetry
from .watch import Watch, anywhere, bad_gradients, bad_weight

WATCHED = ("error_norm", "entropy")  # statistics for the telemetry
_ABSENT = "errornorm: absent"  # equal, not identical, in a deep copy
log = logging.getLogger("errornorm")


@compiler.uncompiled("_enter", "_tap", "_score", "_leave")
class Attachment:
    """What `attach` returns: the loss, the terms of the last batch, and the way back."""

    def __init__(
        self,
        model: nn.Module,
        loss: RobustLoss,
        level: Literal["auto", "hidden", "logits"] = "auto",
        on_nan: Literal["raise", "skip"] = "raise",
    ) -> None:
        require_choice("level", level, "auto", "hidden", "logits")
        require_choice("on_nan", on_nan, "raise", "skip")
        self._view = look_at(model)
        if attached(model) is not None:
            raise ValueError(f"{type(model).__name__} already has an objective attached: detach() it first")
        if (patch := patched_by(model)) is not None:
            raise ValueError(_refusal(patch))
        if loss.ignore_index != IGNORED:
            raise ValueError(
                f"ignore_index={loss.ignore_index}: models and trainers ignore labels of {IGNORED} only: use it where "
                "a position does not count"
            )
        self.model, self.loss, self.level, self.on_nan = model, loss, level, on_nan
        self.terms: LossTerms | None = None
        self.telemetry = Telemetry()
        self._watch = Watch()
        self._job: Job | None = None
        self._share: Tensor | None = None  # of the tokens of a step, in evaluation
        self._inside = False
        self._checked = False
        compiler.keep_out()
        self._head_hooks: list[Any] = []
        self._hook_head()
        self._hooks = [
            model.register_forward_pre_hook(self._enter, with_kwargs=True),
            model.register_forward_hook(self._leave, prepend=True, always_call=True),  # FSDP's own must see the loss
        ]
        # For a Trainer, which looks inside of adapters: tell us the tokens of a whole step, and do not count a first
        # token, which is never predicted.
        told = {"accepts_loss_kwargs": True} | ({} if self.encoder_decoder else {"loss_type": "ForCausalLM"})
        self._before = {name: vars(self._view.inner).get(name, _ABSENT) for name in told}
        vars(self._view.inner).update(told)
        vars(model)["errornorm"] = self

    def detach(self) -> None:
        """The model is as it was before."""
        for hook in (*self._hooks, *self._head_hooks):
            hook.remove()
        self._hooks, self._head_hooks = [], []
        if attached(self.model) is self:
            del vars(self.model)["errornorm"]
            for name, value in self._before.items():
                vars(self._view.inner).pop(name)
                if value != _ABSENT:
                    vars(self._view.inner)[name] = value

    def __enter__(self) -> Attachment:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.detach()

    @property
    def fused(self) -> bool:
        """Whether the loss is computed from hidden states, without logits."""
        return self.level != "logits" and self._obstacle is None

    @property
    def encoder_decoder(self) -> bool:
        return self._view.encoder_decoder

    def expect_advance(self) -> None:
        """Do not look for optimizer steps: `advance` will be called. Adapters say so before the first one."""
        self._watch.told = True

    def advance(self) -> None:
        """One optimizer step was taken. Adapters call it; in a loop of your own you may.

        Without a call, a step is noticed with the next batch: parameters have changed, or gradients are gone.
        """
        self.expect_advance()
        self.require_called()
        self.loss.advance()

    def require_called(self) -> None:
        """Raise if the objective never ran: then something else computes the loss."""
        if self._watch.batches == 0:
            raise RuntimeError(
                f"the attached objective {self.loss.objective} never ran: no training batch with labels= went through "
                f"{type(self.model).__name__} and its head. Pass labels to the model, in training mode "
                "(model.train()); turn off other fused losses (Liger, TRL's fused head, Unsloth) and a trainer's own "
                "label smoothing or compute_loss_func"
            )

    def healthy(self, step: int | None = None) -> bool:
        """Whether the gradients may be used. To be asked after backward, before the optimizer's step.

        With `on_nan="raise"` a NaN or Inf raises FloatingPointError; with `on_nan="skip"` the answer is False.
        """
        causes = [*self._watch.failed, *filter(None, [bad_gradients(self.model)])]
        self._watch.failed.clear()
        if not anywhere(bool(causes)):
            return True
        where = f"optimizer step {self.loss.steps_taken if step is None else step}"
        what = "; ".join(causes) or "another rank has NaN or Inf"
        if self.on_nan == "raise":
            raise FloatingPointError(f"{where}: NaN or Inf in {what}. The step was not taken")
        log.warning("%s skipped: NaN or Inf in %s", where, what)
        return False

    def state_dict(self) -> dict[str, Any]:
        """What a checkpoint needs, beside the model: step, cutoffs, draws."""
        return self.loss.get_extra_state()

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.loss.set_extra_state(state)

    def summary(self) -> str:
        """One line on the last batch."""
        head = f"{self.loss.objective} on {self._view.name}"
        terms = self.terms
        if terms is None:
            return f"{head}: no training batch yet"
        share = terms.num_kept / max(1, terms.num_tokens)
        cutoff = "" if terms.cutoff is None else f", cutoff {terms.cutoff:.4g}"
        level = "hidden states" if self.fused else "logits"
        return (
            f"{head}: step {self.loss.steps_taken}, kept {terms.num_kept} of {terms.num_tokens} tokens "
            f"({share:.1%}){cutoff}; computed from {level}"
        )

    def _hook_head(self) -> None:
        for hook in self._head_hooks:
            hook.remove()
        self._obstacle = obstacle = self._view.obstacle
        if self.level == "hidden" and obstacle is not None:
            raise ValueError(f"level='hidden' is not possible: {obstacle}")
        if self.level == "auto" and obstacle is not None:
            log.warning("%s: %s, so the loss is computed from the logits", self._view.name, obstacle)
        module = self._view.module
        self._head_hooks = [
            module.register_forward_pre_hook(self._tap),
            module.register_forward_hook(self._score, prepend=True),
        ]
        self._checked = False

    def _enter(self, model: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        self._job, self._share, self._inside = None, None, True
        training = model.training and torch.is_grad_enabled()
        if training and kwargs.get("fused_lm_head"):
            raise RuntimeError(_refusal("TRL"))
        if torch.is_grad_enabled() and self._watch.bypassed and not (training and kwargs.get("labels") is not None):
            self.require_called()
        if training:
            self._notice_step()
        if kwargs.get("labels") is None:
            if args and "labels" in inspect.signature(model.forward).bind_partial(*args).arguments:
                raise ValueError("pass labels by name: model(input_ids=..., labels=...)")
            return None
        kwargs = dict(kwargs)
        extra = {name: kwargs.pop(name) for name in (*COLUMNS, SOURCE) if name in kwargs}
        if not training:
            self._share = share_of_step(kwargs, self.encoder_decoder)
            return args, kwargs
        self._find_head()
        self._job = Job.take(kwargs, extra, self._view.inner)
        return args, kwargs

    def _tap(self, head: nn.Module, args: tuple[Any, ...]) -> Any:
        if not self._inside and head.training and torch.is_grad_enabled():
            raise RuntimeError(
                f"the head of {self._view.name} ran, but the forward hooks of the attached model did not: it was "
                "wrapped after attach (PEFT does that); attach to the wrapper instead"
            )
        job = self._job
        if job is None or job.hidden is not None or not self.fused:
            return None
        job.hidden, job.first = args[0], args[0][..., :1, :].detach()
        return job.hidden[..., :1, :], *args[1:]

    def _score(self, head: nn.Module, args: tuple[Any, ...], out: Tensor) -> None:
        job = self._job
        if job is None and self._watch.batches == 0 and out.requires_grad:
            out.register_hook(self._watch.on_bypass)
        if job is None or job.terms is not None or job.hidden is None:
            return
        job.dtype, job.node = out.dtype, out.grad_fn
        self._compute(job, job.hidden.shape[-2], hidden=job.hidden, **self._view.describe())

    def _compute(self, job: Job, positions: int, **source: Any) -> None:
        if job.targets.shape[-1] != positions:
            raise ValueError(
                f"labels of {job.targets.shape[-1]} positions do not fit the model's {positions}: attach needs one "
                "label per position (virtual tokens of prompt tuning and images inside the model are not supported)"
            )
        device = next(x for x in source.values() if isinstance(x, Tensor)).device
        try:
            job.terms = self.loss(targets=job.targets.to(device), **source, **job.columns)  # type: ignore[arg-type]
        except FloatingPointError as error:
            weight = bad_weight(self.model)
            cause = f"; NaN or Inf in the weights, the first is {weight}" if weight else ""
            batch = f"training batch {self._watch.batches + 1}, optimizer step {self.loss.steps_taken}: {error}{cause}"
            if self.on_nan == "raise" or not self._watch.told:  # nobody will ask `healthy`
                raise FloatingPointError(batch) from error
            log.warning("%s", batch)
            self._watch.failed.append(f"training batch {self._watch.batches + 1}")

    def _leave(self, model: nn.Module, args: tuple[Any, ...], outputs: Any) -> Any:
        job, self._job, self._inside = self._job, None, False
        if outputs is None:  # forward raised
            return None
        if job is None:
            return None if self._share is None else shared(outputs, self._share)
        logits = outputs["logits"] if hasattr(outputs, "keys") else outputs[0]
        if logits.dim() < 2:
            raise ValueError(f"{type(model).__name__} returns a loss of its own first: leave out return_dict=False")
        if not self.fused:
            self._compute(job, logits.shape[-2], logits=logits)
        elif job.hidden is None:
            raise RuntimeError(
                f"{type(model).__name__}.forward did not call its output head {type(self._view.module).__name__}: "
                "another fused loss is in the way (Liger, TRL, Unsloth); turn it off"
            )
        self._watch.batches += 1
        if job.terms is None:
            return with_loss(outputs, (logits.float() * 0.0).sum())  # attached; `healthy` will say no to the step
        batches = self._watch.batches
        # Again at 2, 4, 8, ...: while logits are small, a scale or a cap behind the head does not show.
        if self.fused and (not self._checked or batches & (batches - 1) == 0):
            assert job.first is not None
            self._view.check(job.first, logits, job.dtype, job.node)
            self._checked = True
        terms = self.terms = replace(job.terms, total=job.terms.total.detach())  # without the graph
        self.telemetry.add(terms, job.sources)
        self._watch.warn_if_idle(terms, self.loss.objective.norm_threshold, self.loss.steps_taken)
        loss = part_of_step(job.terms, job.count, self._view.router_loss(outputs))
        self._watch.kept |= terms.num_kept > 0  # else its gradients are 0, as if they had been cleared
        if loss.requires_grad:  # not where everything is frozen
            loss.register_hook(self._watch.on_backward)
        return with_loss(outputs, loss)

    def _find_head(self) -> None:
        """Resizing the vocabulary, or an adapter, may have put another head in place, or a hook on it."""
        view = look_at(self.model)
        if view.module is not self._view.module or view.obstacle != self._obstacle:
            self._view = view
            self._hook_head()

    def _notice_step(self) -> None:
        if not self._watch.told and self._watch.stepped(self.model.parameters()):
            self.loss.advance()


def _refusal(patch: str) -> str:
    remedy = "use errornorm.integrations.trl.SFTTrainer" if patch == "TRL" else "turn it off (use_liger_kernel=False)"
    return f"{patch}'s fused loss replaces the model's forward, and the objective would never run: {remedy}"


def attached(model: nn.Module) -> Attachment | None:
    """The attachment of a model, if it has one."""
    found = vars(model).get("errornorm")
    return found if isinstance(found, Attachment) else None


def attach(
    model: nn.Module,
    objective: Objective,
    *,
    level: Literal["auto", "hidden", "logits"] = "auto",
    on_nan: Literal["raise", "skip"] = "raise",
    **options: Any,
) -> Attachment:
    """Make an objective the training loss of a Hugging Face model, in any trainer.

    From here on `model(**batch).loss` is the objective while the model trains, and plain likelihood while it is
    evaluated. `generate` is untouched. In training `outputs.logits` holds the first position only.

    Args:
        model: A causal or encoder-decoder language model, or a PEFT model around one.
        objective: What to optimize, e.g. `errornorm.ent_fraction(0.1)`.
        level: "hidden" computes the loss from the head's input, without logits; "logits" from the model's own logits,
            whatever happens to them. "auto" takes the first where the head is a plain linear layer.
        on_nan: What to do with a batch or a gradient that is not finite: "raise" stops, "skip" leaves the step out
            (with an adapter; a loop of your own calls `handle.expect_advance()` first and asks `handle.healthy()`
            before each step; where nobody does, a batch raises all the same).
        options: Of `RobustLoss`: label_smoothing, normalize ("kept" is that of each micro-batch), kernel, ...

    Example:
        >>> from transformers import GPT2Config, GPT2LMHeadModel
        >>> import errornorm, torch
        >>> model = GPT2LMHeadModel(GPT2Config(n_layer=1, n_head=2, n_embd=8, vocab_size=50, n_positions=16))
        >>> handle = errornorm.attach(model, errornorm.ent_fraction(0.25))
        >>> tokens = torch.randint(50, (2, 5))
        >>> model.train()(input_ids=tokens, labels=tokens).loss.backward()
        >>> handle.terms.num_tokens, handle.terms.num_kept
        (8, 6)
        >>> handle.detach()
    """
    statistics = {*options.pop("statistics", ()), *WATCHED}
    return Attachment(model, RobustLoss(objective, statistics=sorted(statistics), **options), level, on_nan)
