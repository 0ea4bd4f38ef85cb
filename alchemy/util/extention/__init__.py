"""Extensions of libraries; the spelling is kept because existing projects import it."""
